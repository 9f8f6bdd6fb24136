-- Binary trees that come and go, strings that are joined and cut, closures, tables that grow and shrink.
local seed = 7
local function number(most)
  seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
  return (seed >> 8) % most
end

local function tree(depth)
  if depth == 0 then return { value = number(100) } end
  return { left = tree(depth - 1), right = tree(depth - 1), value = depth }
end

local function sum(node)
  if not node.left then return node.value end
  return sum(node.left) + sum(node.right) + node.value
end

local total, long = 0, tree(14)
for _ = 1, 40 do total = total + sum(tree(10 + number(3))) end
print(total, sum(long))

local parts = {}
for i = 1, 60000 do
  parts[#parts + 1] = string.rep(string.char(97 + number(26)), number(40)) .. i
  if number(5) == 0 then table.remove(parts) end
end
local text = table.concat(parts, ";")
local words = {}
for word in text:gmatch("[^;]+") do words[word:sub(1, 3)] = (words[word:sub(1, 3)] or "") .. word:upper() end
local keys = 0
for _, joined in pairs(words) do keys = keys + #joined end
print(#text, keys)

local calls = {}
for i = 1, 100000 do
  local kept = { i, number(9) }
  calls[i % 5000 + 1] = function() kept[1] = kept[1] + kept[2] return kept[1] end
end
for _ = 1, 10 do for i = 1, #calls do total = total + calls[i]() end end
print(total)
