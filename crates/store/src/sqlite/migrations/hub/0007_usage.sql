-- What was used, by time. It has every column that the sums look at, so that the messages themselves, which are long,
-- are not read.
CREATE INDEX messages_usage ON messages (created_at, session_id, model, provider, cost_usd, usage_json)
WHERE usage_json IS NOT NULL;
