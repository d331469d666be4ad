"""The database and the recordings: tables, migrations, one file of plain functions per resource."""
