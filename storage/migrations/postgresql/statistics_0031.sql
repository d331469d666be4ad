-- Sums of ended calls by quarter hours, of revision 0031. `sign` is 1 for a call that has ended, -1 for a deleted one.
CREATE FUNCTION count_call(call calls, sign BIGINT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF sign > 0 THEN
        INSERT INTO statistics_scopes(organization_id, agent_id, phone_number_id, direction)
        SELECT call.organization_id, agent, number, call.direction
        FROM (VALUES ('', ''), (coalesce(call.agent_id, '-'), ''), ('', coalesce(call.phone_number_id, '-')),
            (coalesce(call.agent_id, '-'), coalesce(call.phone_number_id, '-'))) AS scope(agent, number)
        ORDER BY agent, number
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO statistics(scope_id, quarter, figure, amount)
    SELECT statistics_scopes.id, call.created_at / 900000, figures.figure, sign * figures.amount
    FROM statistics_scopes CROSS JOIN (
        SELECT 'calls' AS figure, 1 AS amount
        UNION ALL SELECT 'status.' || call.status, 1
        UNION ALL SELECT 'ended.' || call.ended_reason, 1
        UNION ALL SELECT 'durationSeconds', coalesce(call.duration_seconds, 0)
        UNION ALL SELECT 'costMillionths', round((coalesce(call.cost, 0) * 1000000)::numeric)::bigint
        UNION ALL SELECT 'turns', call.turn_count
        UNION ALL SELECT 'interruptions', call.interruptions
        UNION ALL SELECT 'interruptedCalls', (call.interruptions > 0)::int
        UNION ALL SELECT 'gap.' || CASE
                WHEN gap < 1000 THEN gap / 25 * 25
                WHEN gap < 5000 THEN gap / 100 * 100
                WHEN gap < 60000 THEN gap / 1000 * 1000
                ELSE 60000 END, count(*)
            FROM (SELECT value::int AS gap FROM json_array_elements_text(call.response_gaps)) AS gaps
            GROUP BY 1
    ) AS figures
    WHERE organization_id = call.organization_id AND direction = call.direction
        AND agent_id IN ('', coalesce(call.agent_id, '-'))
        AND phone_number_id IN ('', coalesce(call.phone_number_id, '-'))
        AND figures.amount != 0 AND figures.figure IS NOT NULL
    ORDER BY 1, 2, 3
    ON CONFLICT (scope_id, quarter, figure) DO UPDATE SET amount = statistics.amount + excluded.amount;
    IF sign < 0 THEN
        DELETE FROM statistics USING statistics_scopes
        WHERE statistics.scope_id = statistics_scopes.id AND organization_id = call.organization_id
            AND direction = call.direction
            AND agent_id IN ('', coalesce(call.agent_id, '-'))
            AND phone_number_id IN ('', coalesce(call.phone_number_id, '-'))
            AND quarter = call.created_at / 900000 AND amount = 0;
    END IF;
END $$;

CREATE FUNCTION call_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF tg_op = 'DELETE' THEN
        -- Not while the organization itself is being deleted, with its statistics.
        IF EXISTS (SELECT 1 FROM organizations WHERE id = old.organization_id) THEN
            PERFORM count_call(old, -1);
        END IF;
    ELSE
        PERFORM count_call(new, 1);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER statistics_inserted AFTER INSERT ON calls
    FOR EACH ROW WHEN (new.ended_at IS NOT NULL AND NOT new.test) EXECUTE FUNCTION call_counted();
CREATE TRIGGER statistics_ended AFTER UPDATE OF ended_at ON calls
    FOR EACH ROW WHEN (old.ended_at IS NULL AND new.ended_at IS NOT NULL AND NOT new.test)
    EXECUTE FUNCTION call_counted();
CREATE TRIGGER statistics_removed AFTER DELETE ON calls
    FOR EACH ROW WHEN (old.ended_at IS NOT NULL AND NOT old.test) EXECUTE FUNCTION call_counted();
