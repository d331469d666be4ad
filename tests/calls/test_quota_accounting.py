"""Quota metrics, sizes of recordings, files of failed documents."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.quota_accounting import QuotaAccounting
from config.clock import utc_now
from config.settings_tables import QuotaSettings
from storage import database_snapshot, tables
from storage.accounts import organizations, quotas
from storage.calls import calls, recordings
from storage.calls.calls import Call
from storage.knowledge import files
from tests.calls.knowledge.ingestion_harness import Archive, running_ingester

LIMITS = QuotaSettings().model_dump()


def figures(accounting: QuotaAccounting) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["organization"], sample.labels["quota"]): sample.value
        for metric in accounting.collect()
        for sample in metric.samples
    }


async def test_the_file_of_a_failed_document_is_removed_after_a_day_and_its_row_stays(archive: Archive) -> None:
    failed, good = await archive.upload(b"\x00\x01", "application/pdf"), await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert (await archive.get(failed)).status == "failed"
    accounting = QuotaAccounting(archive.database, archive.data_dir, LIMITS)
    await accounting.remove_failed_files()
    assert files.path_of(archive.data_dir, failed.id).exists(), "not before"
    documents = tables.knowledge_documents
    day_ago = sa.update(documents).values(updated_at=utc_now() - timedelta(days=1, seconds=1), file_size=7)
    await archive.database.write(lambda conn: conn.execute(day_ago))
    await accounting.remove_failed_files()
    await accounting.remove_failed_files()
    assert not files.path_of(archive.data_dir, failed.id).exists()
    assert files.path_of(archive.data_dir, good.id).exists()
    assert (await archive.get(failed)).error
    spoken_of = await archive.database.read(
        lambda conn: [each.name for each in database_snapshot.referenced_files(conn)]
    )
    assert f"knowledge/{good.id}" in spoken_of and f"knowledge/{failed.id}" not in spoken_of, "a backup lacks nothing"
    size = sa.select(sa.func.sum(documents.c.file_size)).where(documents.c.file_removed_at.is_(None))
    assert await archive.database.read(lambda conn: conn.execute(size).scalar_one()) == 7
    await archive.delete(failed)


async def test_recordings_are_measured_counted_and_warned_about(archive: Archive) -> None:
    def ended(conn: sa.Connection) -> Call:
        call = calls.create_inbound(
            conn, organization_id=archive.organization_id, agent_id=archive.agent_id, phone_number_id="n",
            provider="sip", call_sid="x", customer_number="1",
        )  # fmt: skip
        calls.finish(
            conn, call.id, status="completed", ended_reason="customer_ended", ended_at=utc_now(), recording=True
        )
        return call

    call, other = [await archive.database.write(ended) for _ in range(2)]
    path = recordings.path_of(archive.data_dir, call.id, call.created_at)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(5000))
    accounting = QuotaAccounting(archive.database, archive.data_dir, {**LIMITS, "recording_bytes": 4999})
    with capture_logs() as lines:
        await accounting._check()
        await accounting._check()
    (warning,) = [line for line in lines if line["event"] == "quota.recordings_over"]
    assert (warning["organization_id"], warning["used"], warning["allowed"]) == (archive.organization_id, 5000, 4999)
    names = ("trunkline_quota_used", "trunkline_quota_limit")
    found = figures(accounting)
    assert [found[name, archive.organization_id, "recording_bytes"] for name in names] == [5000, 4999]
    assert found["trunkline_quota_used", archive.organization_id, "agents"] == 1

    def drop(conn: sa.Connection) -> int:
        conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(recorded=False))
        conn.execute(sa.delete(tables.calls).where(tables.calls.c.id == other.id))
        return quotas.usage(conn, archive.organization_id, LIMITS)["recording_bytes"].used

    assert await archive.database.write(drop) == 0


async def test_a_deleted_organization_has_no_usage(archive: Archive, tmp_path: Path) -> None:
    def drop(conn: sa.Connection) -> int:
        other = organizations.create(conn, "other")
        conn.execute(sa.delete(tables.organizations).where(tables.organizations.c.id == archive.organization_id))
        conn.execute(sa.delete(tables.organizations).where(tables.organizations.c.id == other.id))
        return conn.execute(sa.select(sa.func.count()).select_from(tables.quota_usage)).scalar_one()

    assert await archive.database.write(drop) == 0
