-- Version 1. Messages are never overwritten by another message: edits and regenerations are siblings under one parent_id.
CREATE TABLE chat (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    title         TEXT NOT NULL,
    created_s     REAL NOT NULL,
    updated_s     REAL NOT NULL,
    leaf_id       INTEGER,
    system_prompt TEXT NOT NULL DEFAULT '',
    sampling_json TEXT NOT NULL DEFAULT '{}',
    model_path    TEXT NOT NULL DEFAULT '',
    deleted_s     REAL
);
CREATE INDEX chat_by_update ON chat (updated_s DESC) WHERE deleted_s IS NULL;

CREATE TABLE message (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id       INTEGER NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    parent_id     INTEGER REFERENCES message (id),
    role          TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text          TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('done', 'streaming', 'interrupted', 'stopped', 'error')),
    created_s     REAL NOT NULL,
    n_tokens      INTEGER NOT NULL DEFAULT 0,
    n_prompt      INTEGER NOT NULL DEFAULT 0,
    decode_tok_s  REAL,
    prefill_tok_s REAL,
    ttft_s        REAL,
    error         TEXT NOT NULL DEFAULT '',
    deleted_s     REAL
);
CREATE INDEX message_by_chat ON message (chat_id, parent_id, deleted_s);
CREATE INDEX message_by_parent ON message (parent_id);
CREATE INDEX message_streaming ON message (id) WHERE status = 'streaming';

-- rowid is the id of the message or of the chat. The text is stored with spaces around Han characters, so that each is a word.
CREATE VIRTUAL TABLE message_search USING fts5 (text, tokenize = 'unicode61');
CREATE VIRTUAL TABLE title_search USING fts5 (text, tokenize = 'unicode61');
