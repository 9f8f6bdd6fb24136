-- Tables in memory, filled, indexed, joined, grouped, changed, deleted from.
PRAGMA cache_size = -65536;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, town TEXT, note TEXT);
CREATE TABLE article(id INTEGER PRIMARY KEY, title TEXT, price INTEGER);
CREATE TABLE line(customer INTEGER, article INTEGER, count INTEGER, day INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
INSERT INTO customer SELECT i, 'name' || (i * 7919 % 10007), 'town' || (i * 31 % 499), printf('%.*c', i % 200, 'x') FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
INSERT INTO article SELECT i, 'article ' || (i * 13 % 1999), i * 37 % 1000 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO line SELECT i * 7919 % 40000 + 1, i * 104729 % 2000 + 1, i % 9, i % 365 FROM n;
CREATE INDEX line_customer ON line(customer);
CREATE INDEX customer_town ON customer(town, name);
SELECT town, count(*), sum(count * price) AS worth FROM line JOIN customer ON customer.id = line.customer
JOIN article ON article.id = line.article GROUP BY town ORDER BY worth DESC LIMIT 10;
SELECT name, group_concat(DISTINCT day) FROM line JOIN customer ON customer.id = line.customer
WHERE customer.id < 200 GROUP BY name ORDER BY length(group_concat(DISTINCT day)) DESC, name LIMIT 5;
UPDATE customer SET note = note || upper(name) WHERE id % 3 = 0;
DELETE FROM line WHERE day % 5 = 0;
SELECT count(*), sum(length(note)) FROM customer, (SELECT count(*) FROM line);
WITH ranked AS (SELECT customer, day, count, row_number() OVER (PARTITION BY customer ORDER BY count DESC, day, article) AS place FROM line)
SELECT sum(day), sum(count) FROM ranked WHERE place <= 2;
SELECT replace(hex(zeroblob(1000)), '00', 'ab') = substr(group_concat(title, ''), 1, 2000) FROM article;
