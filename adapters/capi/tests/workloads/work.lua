-- Work for lua5.4 whose output is always the same: tables, strings, closures, coroutines, garbage.
math.randomseed(11)
local seed = 3
local function draw(n)
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  return seed // 65536 % n
end

local words, count = {}, 0
for i = 1, 100000 do
  local letters = {}
  for j = 1, draw(10) + 1 do letters[j] = string.char(97 + draw(5)) end
  local word = table.concat(letters)
  if not words[word] then words[word] = {}; count = count + 1 end
  table.insert(words[word], i)
end
local sorted = {}
for word, list in pairs(words) do sorted[#sorted + 1] = string.format("%06d%s", #list, word) end
table.sort(sorted)
print(count, sorted[1], sorted[#sorted])

local function tree(depth) return depth == 0 and {} or { tree(depth - 1), tree(depth - 1) } end
local function size(node) return node[1] and 1 + size(node[1]) + size(node[2]) or 1 end
local total = 0
for _ = 1, 8 do total = total + size(tree(13)) end
print(total)

local made = {}
for i = 1, 2000 do
  made[i] = coroutine.wrap(function() for j = 1, 20 do coroutine.yield(string.rep("x", i % 50 + j)) end end)
end
local length = 0
for _ = 1, 20 do for i = 1, 2000 do length = length + #made[i]() end end
print(length)

local text = string.rep("abc def ", 50000)
print(#text:gsub("(%w+) (%w+)", "%2 %1"), select(2, text:gsub("b", "bbb")))
collectgarbage()
os.exit(5, true)
