-- The role that nodes serve with: it reads and writes rows and may not change the schema. Run by the schema's owner after each
-- `signalbox migrate`, with psql -v password=…; saying it twice is harmless.
SELECT format('CREATE ROLE signalbox_serving LOGIN PASSWORD %L', :'password')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'signalbox_serving') \gexec
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO signalbox_serving;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO signalbox_serving;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO signalbox_serving;
