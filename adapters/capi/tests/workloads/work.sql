-- Work for sqlite3 whose output is always the same: inserts, indices, sorting, grouping, text, blobs, a vacuum.
create table t (id integer primary key, name text, value real, data blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t select i, 'name' || (i * 7919 % 10007), i * 0.5, zeroblob(i % 300) from n;
create index by_name on t (name);
select count(*), count(distinct name), sum(length(data)) from t;
select name, count(*), round(avg(value), 3) from t group by name order by 2 desc, 1 limit 5;
update t set name = upper(name) || hex(substr(data, 1, 8)) where id % 3 = 0;
select name from t order by name desc limit 3 offset 100;
delete from t where id % 2 = 0;
vacuum;
select count(*), max(length(name)) from t a join (select id k from t where id % 11 = 0) b on a.id = b.k;
select json_array_length(json_group_array(name)) from t;
select length(group_concat(name, '-')) from t;
with recursive f(a, b) as (select 0, 1 union all select b, a + b from f limit 60) select max(a) from f;
