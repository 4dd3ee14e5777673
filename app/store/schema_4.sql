-- Version 4. What the machine did while an answer was written, packed by app.telemetry.message_telemetry; it goes with its message.
CREATE TABLE message_telemetry (
    message_id INTEGER PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE,
    data       BLOB NOT NULL
);
