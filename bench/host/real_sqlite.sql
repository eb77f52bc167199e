-- A real program for bench/host.py: tables in memory, indexes, joins, groups, updates and deletions.
PRAGMA journal_mode = OFF;
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, town TEXT);
CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, note TEXT);

WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO customer SELECT i, 'customer ' || (i * 7919 % 20011), 'town ' || (i * 31 % 257) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO sale
SELECT i, 1 + i * 104729 % 20000, (i * 17 % 10007) / 7.0, substr('a note of some length ', 1, i % 23) || i FROM n;

CREATE INDEX sale_by_customer ON sale (customer);
CREATE INDEX customer_by_name ON customer (name);
CREATE INDEX sale_by_note ON sale (note);

SELECT town, count(*), round(sum(amount), 2) FROM customer JOIN sale ON sale.customer = customer.id
GROUP BY town ORDER BY 3 DESC LIMIT 5;
SELECT a.name, b.name, a.town FROM customer a JOIN customer b ON a.town = b.town AND a.id < b.id
WHERE a.name LIKE 'customer 12%' ORDER BY a.name, b.name LIMIT 5;
SELECT length(group_concat(note, '; ')) FROM sale GROUP BY customer % 100 ORDER BY 1 LIMIT 3;

UPDATE sale SET note = upper(note) || '!' WHERE customer % 3 = 0;
DELETE FROM sale WHERE id % 7 = 3;
SELECT count(*), max(note), min(note), round(avg(amount), 3) FROM sale;
SELECT count(DISTINCT substr(note, 1, 9)), count(DISTINCT customer) FROM sale;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
SELECT count(*), round(sum(amount), 1) FROM n JOIN sale ON sale.customer = i JOIN customer ON customer.id = i
WHERE customer.town >= 'town 2';
