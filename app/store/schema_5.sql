-- Version 5. How often each expert of a model was passed in the making of an answer, packed by engine.api.expert_use; an answer that is
-- continued has several. They go with their message.
CREATE TABLE message_experts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id INTEGER NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    model      TEXT NOT NULL,
    data       BLOB NOT NULL
);
CREATE INDEX message_experts_of ON message_experts (message_id);
CREATE INDEX message_experts_by ON message_experts (model, id DESC);
