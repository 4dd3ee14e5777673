-- Version 2. seen_from: the first message of the chat that the model is given, NULL for all; error_kind: which error ended an answer.
ALTER TABLE chat ADD COLUMN seen_from INTEGER;
ALTER TABLE message ADD COLUMN error_kind TEXT NOT NULL DEFAULT '';
