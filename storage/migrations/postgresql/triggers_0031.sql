-- Functions, triggers and the text index of revision 0031. They do what the triggers of SQLite's migrations do.

-- Text index: the lexemes are the terms of a passage, and the agent's id with the prefix "agent:".
CREATE TABLE knowledge_index (
    chunk_id BIGINT NOT NULL,
    agent VARCHAR(36) COLLATE "C" NOT NULL,
    terms VARCHAR COLLATE "C" NOT NULL,
    lexemes TSVECTOR GENERATED ALWAYS AS (
        array_to_tsvector(array_remove(string_to_array(terms, ' '), '') || ('agent:' || agent)::text)
    ) STORED,
    CONSTRAINT pk_knowledge_index PRIMARY KEY (chunk_id)
);

CREATE INDEX ix_knowledge_index_lexemes ON knowledge_index USING gin (lexemes);

CREATE FUNCTION knowledge_chunks_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM knowledge_index WHERE chunk_id = old.id;
    DELETE FROM knowledge_vectors WHERE chunk_id = old.id;
    RETURN NULL;
END $$;

CREATE TRIGGER knowledge_chunks_removed AFTER DELETE ON knowledge_chunks
    FOR EACH ROW EXECUTE FUNCTION knowledge_chunks_removed();

CREATE FUNCTION knowledge_contents_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM knowledge_contents WHERE content_id = old.document_id;
    RETURN NULL;
END $$;

CREATE TRIGGER knowledge_contents_removed AFTER DELETE ON knowledge_removals
    FOR EACH ROW EXECUTE FUNCTION knowledge_contents_removed();

CREATE FUNCTION knowledge_documents_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM knowledge_documents WHERE content_id = old.content_id) THEN
        INSERT INTO knowledge_removals(document_id) VALUES (old.content_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER knowledge_documents_removed AFTER DELETE ON knowledge_documents
    FOR EACH ROW EXECUTE FUNCTION knowledge_documents_removed();

-- Files to remove.
CREATE FUNCTION sound_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO background_sound_removals(sound_id) VALUES (old.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER background_sounds_removed AFTER DELETE ON background_sounds
    FOR EACH ROW EXECUTE FUNCTION sound_removed();
CREATE TRIGGER hold_music_removed AFTER DELETE ON hold_music
    FOR EACH ROW EXECUTE FUNCTION sound_removed();

CREATE FUNCTION recording_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO recording_removals(call_id, created_at) VALUES (old.id, old.created_at) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER calls_removed AFTER DELETE ON calls
    FOR EACH ROW EXECUTE FUNCTION recording_removed();
CREATE TRIGGER calls_unrecorded AFTER UPDATE OF recorded ON calls
    FOR EACH ROW WHEN (old.recorded AND NOT new.recorded) EXECUTE FUNCTION recording_removed();

-- Hold music that no agent refers to any more.
CREATE FUNCTION hold_music_unreferenced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM hold_music
    WHERE id = old.hold_music_id AND NOT EXISTS (SELECT 1 FROM agents WHERE hold_music_id = old.hold_music_id);
    RETURN NULL;
END $$;

CREATE TRIGGER hold_music_of_deleted_agent AFTER DELETE ON agents
    FOR EACH ROW WHEN (old.hold_music_id IS NOT NULL) EXECUTE FUNCTION hold_music_unreferenced();
CREATE TRIGGER hold_music_replaced AFTER UPDATE OF hold_music_id ON agents
    FOR EACH ROW WHEN (old.hold_music_id IS NOT NULL) EXECUTE FUNCTION hold_music_unreferenced();

-- Sizes of recordings; the size of a new one is unknown until it is measured.
CREATE FUNCTION recording_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO recording_sizes(call_id, organization_id) VALUES (new.id, new.organization_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE FUNCTION recording_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM recording_sizes WHERE call_id = old.id;
    RETURN NULL;
END $$;

CREATE TRIGGER recording_added AFTER INSERT ON calls
    FOR EACH ROW WHEN (new.recorded) EXECUTE FUNCTION recording_added();
CREATE TRIGGER recording_made AFTER UPDATE OF recorded ON calls
    FOR EACH ROW WHEN (NOT old.recorded AND new.recorded) EXECUTE FUNCTION recording_added();
CREATE TRIGGER recording_dropped AFTER UPDATE OF recorded ON calls
    FOR EACH ROW WHEN (old.recorded AND NOT new.recorded) EXECUTE FUNCTION recording_dropped();

-- Usage of quotas.
CREATE FUNCTION count_quota(organization VARCHAR, counted VARCHAR, change BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF organization IS NULL THEN
        RETURN;
    END IF;
    IF change <= 0 THEN
        UPDATE quota_usage SET used = used + change WHERE organization_id = organization AND quota = counted;
    ELSE
        INSERT INTO quota_usage(organization_id, quota, used) VALUES (organization, counted, change)
        ON CONFLICT (organization_id, quota) DO UPDATE SET used = quota_usage.used + excluded.used;
    END IF;
END $$;
