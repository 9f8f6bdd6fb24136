"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main"), tip = document.getElementById("tip");
const NS = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function drawn(name, attributes = {}, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(value) {
  let at = 0;
  while (value >= 1024 && at < UNITS.length - 1) { value /= 1024; at++; }
  return (at === 0 ? value : value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)) + " " + UNITS[at];
}
function count(value) { return value.toLocaleString("en"); }
function time(us) {
  if (us < 1e3) return us.toFixed(0) + " \u00b5s";
  if (us < 1e6) return (us / 1e3).toFixed(us < 1e5 ? 1 : 0) + " ms";
  if (us < 6e7) return (us / 1e6).toFixed(us < 1e7 ? 2 : 1) + " s";
  if (us < 3.6e9) return (us / 6e7).toFixed(1) + " min";
  return (us / 3.6e9).toFixed(1) + " h";
}
const named = tag => tag === "" ? "(no tag)" : tag;
const colour = index => `var(--c${Math.min(index, 9)})`;

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 4)) + "px";
  tip.style.top = Math.max(4, Math.min(y + 14, innerHeight - height - 4)) + "px";
}
const hideTip = () => { tip.hidden = true; };

/** Round steps for an axis of bytes: powers of two of a unit. */
function steps(most) {
  let step = 1;
  while (most / step > 6) step *= 2;
  const list = [];
  for (let value = 0; value <= most; value += step) list.push(value);
  return list;
}

/** A chart over time. Series: {name, values, colour, area}. Stacked series lie on each other. */
function chart(label, times, series, stacked, marks = []) {
  const W = 1000, H = 300, L = 70, R = 12, T = 12, B = 26;
  const n = times.length, end = Math.max(times[n - 1], 1);
  const tops = series.map(() => new Array(n).fill(0));
  for (let i = 0; i < n; i++) {
    let sum = 0;
    series.forEach((one, k) => { sum = stacked ? sum + one.values[i] : one.values[i]; tops[k][i] = sum; });
  }
  let most = 1;
  tops.forEach(top => top.forEach(value => { if (value > most) most = value; }));
  const x = i => L + (W - L - R) * times[i] / end, y = value => H - B - (H - T - B) * value / most;
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0", "aria-label": label, preserveAspectRatio: "none" });
  svg.style.height = "20rem";
  const drawing = element("div", { class: "drawing" }, svg);
  for (const value of steps(most)) {
    svg.append(drawn("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), stroke: "var(--line)", "vector-effect": "non-scaling-stroke" }));
    const label = element("span", { class: "axis", "aria-hidden": "true" }, bytes(value));
    label.style.top = `${100 * y(value) / H}%`;
    drawing.append(label);
  }
  const path = (values, i0 = 0) => values.map((value, i) => `${i ? "L" : "M"}${x(i + i0).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  for (let k = series.length - 1; k >= 0; k--) {
    const one = series[k];
    if (stacked) {
      const under = k ? tops[k - 1] : new Array(n).fill(0);
      const back = under.map((value, i) => `L${x(n - 1 - i).toFixed(1)} ${y(under[n - 1 - i]).toFixed(1)}`).join("");
      svg.append(drawn("path", { d: path(tops[k]) + back + "Z", fill: one.colour, "fill-opacity": ".75" }));
    } else {
      svg.append(drawn("path", { d: path(tops[k]), fill: "none", stroke: one.colour, "stroke-width": "1.6", "vector-effect": "non-scaling-stroke" }));
    }
  }
  for (const mark of marks) {
    const at = L + (W - L - R) * mark.time_us / end;
    svg.append(drawn("line", { x1: at, x2: at, y1: T, y2: T + 8, stroke: "var(--soft)", "vector-effect": "non-scaling-stroke" }));
  }
  const cross = drawn("line", { y1: T, y2: H - B, stroke: "var(--text)", "stroke-dasharray": "3 3", "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  svg.append(cross);
  const holder = element("div", { class: "chart" });
  const axis = element("div", { class: "legend", "aria-hidden": "true" });
  axis.append(`Time from 0 to ${time(end)}; highest ${bytes(most)}.`);
  let at = 0;
  const point = (index, px, py) => {
    at = Math.max(0, Math.min(n - 1, index));
    cross.setAttribute("x1", x(at)); cross.setAttribute("x2", x(at)); cross.setAttribute("visibility", "visible");
    const lines = series.map(one => `${one.name}: ${bytes(one.values[at])}`);
    const box = svg.getBoundingClientRect();
    showTip(time(times[at]) + "\n" + lines.join("\n"), px ?? box.left + box.width * x(at) / W, py ?? box.top + 20);
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width * W - L) / (W - L - R) * end;
    let low = 0, high = n - 1;
    while (low < high) { const middle = (low + high) >> 1; if (times[middle] < wanted) low = middle + 1; else high = middle; }
    point(low, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
  svg.addEventListener("blur", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -n, End: n }[event.key];
    if (step) { event.preventDefault(); point(at + step); }
  });
  const legend = element("div", { class: "legend" });
  series.forEach(one => {
    const swatch = element("i");
    swatch.style.background = one.colour;
    legend.append(element("span", {}, swatch, one.name));
  });
  holder.append(drawing, axis, legend);
  return holder;
}

/** A table whose heads sort. Columns: {name, value, show, text}. */
function table(label, columns, rows, sorted = 0) {
  const made = element("table", { "aria-label": label }), head = element("tr"), body = element("tbody");
  const few = 12, more = element("button", { type: "button" }, `Show all ${count(rows.length)}`);
  let by = sorted, down = true, all = rows.length <= few + 3;
  more.hidden = all;
  more.addEventListener("click", () => { all = more.hidden = true; fill(); });
  const fill = () => {
    const value = columns[by].value;
    rows.sort((a, b) => (value(a) < value(b) ? 1 : value(a) > value(b) ? -1 : 0) * (down ? 1 : -1));
    body.replaceChildren(...(all ? rows : rows.slice(0, few)).map(row => element("tr", {}, ...columns.map(column => {
      const cell = element("td", {}, (column.show ?? String)(column.value(row)));
      if (column.text) cell.className = "text";
      return cell;
    }))));
  };
  columns.forEach((column, at) => {
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => { down = at === by ? !down : !column.text; by = at; fill(); });
    const cell = element("th", { scope: "col" }, button);
    if (column.text) cell.className = "text";
    head.append(cell);
  });
  fill();
  made.append(element("thead", {}, head), body);
  return element("div", { class: "scroll" }, made, more);
}

/** The address map: time from left to right, addresses upward; and one moment as a strip. */
function addressMap(trace) {
  const map = trace.map, holder = element("div");
  const moments = map.fill.length, columns = map.addresses.length;
  if (!moments || !columns) return element("p", {}, "No block is live at any moment looked at.");
  const canvas = element("canvas", { tabindex: "0", role: "slider", "aria-label": "Address map over time", "aria-valuemin": 0, "aria-valuemax": moments - 1 });
  const strip = element("canvas", { role: "img", "aria-label": "Addresses at the chosen moment" });
  canvas.style.height = "18rem"; strip.style.height = "3.5rem"; strip.style.marginTop = ".5rem";
  const slider = element("input", { type: "range", min: 0, max: moments - 1, value: 0, "aria-label": "Moment" });
  const text = element("p");
  let at = 0;
  trace.timeline.live_bytes.forEach((value, i) => { if (value === trace.peak_live_bytes) at = map.event.findIndex(e => e >= trace.timeline.event[i]); });
  at = at < 0 ? moments - 1 : at;
  const paint = (target, moment, from, width, height) => {
    const styles = getComputedStyle(document.documentElement), context = target.getContext("2d");
    const colours = Array.from({ length: 10 }, (_, i) => styles.getPropertyValue(`--c${i}`).trim());
    for (let column = 0; column < columns; column++) {
      const fill = parseInt(map.fill[moment][column], 16);
      if (!fill) continue;
      context.globalAlpha = .2 + .8 * fill / 15;
      context.fillStyle = colours[parseInt(map.tag[moment][column], 16)];
      if (height === 0) context.fillRect(from, target.height * (1 - (column + 1) / columns), width, Math.ceil(target.height / columns));
      else context.fillRect(target.width * column / columns, 0, Math.ceil(target.width / columns), height);
    }
  };
  const draw = () => {
    const scale = devicePixelRatio || 1;
    for (const each of [canvas, strip]) {
      each.width = Math.max(1, each.clientWidth * scale); each.height = Math.max(1, each.clientHeight * scale);
    }
    const width = canvas.width / moments;
    for (let moment = 0; moment < moments; moment++) paint(canvas, moment, Math.floor(moment * width), Math.ceil(width), 0);
    const context = canvas.getContext("2d");
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
    context.strokeRect(Math.floor(at * width) + .5, .5, Math.max(2, width), canvas.height - 1);
    paint(strip, at, 0, 0, strip.height);
    const taken = [...map.fill[at]].reduce((sum, digit) => sum + parseInt(digit, 16), 0) / 15 * map.column_bytes;
    text.textContent = `Event ${count(map.event[at] + 1)}, ${time(map.time_us[at])}: about ${bytes(taken)} in ${count(columns)} columns of ${bytes(map.column_bytes)} each.`;
    canvas.setAttribute("aria-valuenow", at); canvas.setAttribute("aria-valuetext", text.textContent);
    slider.value = at;
  };
  const go = moment => { at = Math.max(0, Math.min(moments - 1, moment)); draw(); };
  slider.addEventListener("input", () => go(Number(slider.value)));
  canvas.addEventListener("pointerdown", event => { const box = canvas.getBoundingClientRect(); go(Math.floor((event.clientX - box.left) / box.width * moments)); });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -moments, End: moments }[event.key];
    if (step) { event.preventDefault(); go(at + step); }
  });
  const hover = (target, place) => {
    target.addEventListener("pointermove", event => {
      const [moment, column] = place(event, target.getBoundingClientRect());
      const fill = map.fill[moment]?.[column];
      if (fill === undefined) return hideTip();
      const tag = parseInt(map.tag[moment][column], 16), name = tag < map.tags.length ? named(map.tags[tag]) : "other tags";
      const rate = Math.round(parseInt(fill, 16) / 15 * 100);
      showTip(`0x${map.addresses[column].toString(16)}, ${bytes(map.column_bytes)}\n${rate ? `${rate} % taken, most by ${name}` : "free"}`, event.clientX, event.clientY);
    });
    target.addEventListener("pointerleave", hideTip);
  };
  const cell = (position, size, cells) => Math.max(0, Math.min(cells - 1, Math.floor(position / size * cells)));
  hover(canvas, (event, box) => [cell(event.clientX - box.left, box.width, moments), columns - 1 - cell(event.clientY - box.top, box.height, columns)]);
  hover(strip, (event, box) => [at, cell(event.clientX - box.left, box.width, columns)]);
  const legend = element("div", { class: "legend" });
  [...map.tags.map(named), "other tags"].forEach((name, i) => {
    const swatch = element("i");
    swatch.style.background = colour(i === map.tags.length ? 9 : i);
    legend.append(element("span", {}, swatch, name));
  });
  holder.append(canvas, slider, strip, text, legend);
  new ResizeObserver(draw).observe(canvas);
  redraws.push(draw);
  return holder;
}

/** Blocks by size and life. */
function sizes(trace) {
  const { least_size, blocks, bytes: all } = trace.sizes, columns = blocks[0].length;
  const most = Math.max(...blocks.flat(), 1);
  const W = 1000, L = 90, T = 8, B = 40, row = 20, H = T + B + row * blocks.length, width = (W - L) / columns;
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Blocks by size and lifetime" });
  const life = column => column === columns - 1 ? "live at the end" : `${time(2 ** column - 1)} to ${time(2 ** (column + 1) - 1)}`;
  blocks.forEach((cells, r) => {
    const y = H - B - (r + 1) * row;
    svg.append(drawn("text", { x: L - 8, y: y + 14, "text-anchor": "end" }, bytes(2 ** (least_size + r))));
    cells.forEach((number, c) => {
      const rect = drawn("rect", { x: L + c * width, y, width: Math.max(1, width - 1), height: row - 1, fill: colour(c === columns - 1 ? 1 : 0),
        "fill-opacity": number ? .12 + .88 * Math.log1p(number) / Math.log1p(most) : .03 });
      if (number) {
        rect.addEventListener("pointermove", event => showTip(`${bytes(2 ** (least_size + r))} to ${bytes(2 ** (least_size + r + 1))}, ${life(c)}\n${count(number)} blocks, ${bytes(all[r][c])}`, event.clientX, event.clientY));
        rect.addEventListener("pointerleave", hideTip);
      }
      svg.append(rect);
    });
  });
  const every = Math.ceil(columns / 8);
  for (let c = 0; c < columns - 1; c += every) svg.append(drawn("text", { x: L + c * width, y: H - B + 16 }, time(2 ** c - 1)));
  svg.append(drawn("text", { x: W, y: H - B + 32, "text-anchor": "end" }, "live at the end"));
  return svg;
}

const redraws = [];
function section(id, title, why, ...content) {
  const made = element("section", { id, "aria-labelledby": id + "-title" }, element("h2", { id: id + "-title" }, title));
  if (why) made.append(element("p", {}, why));
  made.append(...content);
  return made;
}

function advice(trace) {
  if (!trace.advice.length) return [element("p", {}, trace.no_advice)];
  return trace.advice.map(one => {
    const made = element("div", { class: "advice" }, element("b", {}, one.title), element("p", {}, one.why), element("pre", {}, one.setting));
    return made;
  });
}

function show(at) {
  const trace = data.traces[at], line = trace.timeline;
  redraws.length = 0;
  const card = (name, value) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name));
  const used = trace.peak_reserved_bytes ? (100 * trace.peak_in_use_bytes / trace.peak_reserved_bytes).toFixed(1) + " %" : "-";
  const parts = [];
  if (data.traces.length > 1) parts.push(section("all", "All traces", "", table("All traces", [
    { name: "trace", value: row => row.name, text: true },
    { name: "events", value: row => row.events, show: count },
    { name: "time", value: row => row.duration_us, show: time },
    { name: "peak live", value: row => row.peak_live_bytes, show: bytes },
    { name: "peak reserved", value: row => row.peak_reserved_bytes, show: bytes },
    { name: "live at the end", value: row => row.live_at_end_bytes, show: bytes },
    { name: "advice", value: row => row.advice.length, show: count },
  ], [...data.traces], 3)));
  parts.push(element("div", { class: "cards" }, card("events", count(trace.events)), card("time", time(trace.duration_us)), card("peak live", bytes(trace.peak_live_bytes)),
    card(`peak reserved, replayed (${data.source})`, bytes(trace.peak_reserved_bytes)), card("utilisation", used), card("live at the end", bytes(trace.live_at_end_bytes)), ...(trace.failed ? [card("allocations that failed in the replay", count(trace.failed))] : [])));
  parts.push(section("advice", "Advice", "Each setting was run on a device" + (data.source === "segments" ? "" : ", whose streams cache blocks as the pool of this page does not") + ": chosen by replaying parts of the trace's first half, with larger blocks too. Copy what suits you into the file that TERRACE_CONFIG names.", ...advice(trace)));
  parts.push(section("memory", "Memory over time", "Live bytes of the trace, and what terrace's pool reserves for them.", chart("Memory over time", line.time_us, [
    { name: "live", values: line.live_bytes, colour: colour(0) },
    { name: "reserved", values: line.reserved_bytes, colour: colour(1) },
    { name: "largest free", values: line.largest_free_bytes, colour: colour(2) },
  ], false, trace.marks)));
  if (line.by_tag.length) parts.push(section("tags", "By tag", "", chart("Live bytes by tag", line.time_us, line.by_tag.map((one, i) => ({ name: named(one.tag), values: one.live_bytes, colour: colour(i) })), true), table("Tags", [
    { name: "tag", value: row => named(row.tag), text: true },
    { name: "peak", value: row => row.peak_bytes, show: bytes },
    { name: "allocated in all", value: row => row.allocated_bytes, show: bytes },
    { name: "allocations", value: row => row.allocations, show: count },
    { name: "live at the end", value: row => row.live_bytes, show: bytes },
  ], trace.tags, 1)));
  parts.push(section("map", "Address map", "Time from left to right, addresses upward; drag or use the arrow keys. The strip below is the chosen moment.", addressMap(trace)));
  if (trace.copies.length) parts.push(section("tiers", "Tiers and transfers", "", table("Transfers", [
    { name: "from tier", value: row => row.from }, { name: "to tier", value: row => row.to },
    { name: "copies", value: row => row.copies, show: count }, { name: "bytes", value: row => row.bytes, show: bytes },
  ], trace.copies, 3), chart("Bytes copied over time", Array.from({ length: 64 }, (_, i) => trace.duration_us * (i + 1) / 64), trace.copies.map((row, i) => ({ name: `tier ${row.from} to ${row.to}`, values: row.over_time, colour: colour(i) })), true)));
  parts.push(section("leaks", "Live at the end", trace.leaks.length ? "By tag and call site, with the age of the oldest block." : "Nothing is live at the end.", ...(trace.leaks.length ? [table("Live at the end", [
    { name: "tag", value: row => named(row.tag), text: true }, { name: "call site", value: row => row.site, text: true },
    { name: "blocks", value: row => row.blocks, show: count }, { name: "bytes", value: row => row.bytes, show: bytes }, { name: "oldest", value: row => row.oldest_us, show: time },
  ], trace.leaks, 3)] : [])));
  parts.push(section("sizes", "Sizes and lifetimes", "How many blocks of which size lived how long; darker is more.", sizes(trace)));
  main.replaceChildren(...parts);
  document.getElementById("sections").replaceChildren(...[...main.querySelectorAll("section")].map(each => element("a", { href: "#" + each.id }, each.querySelector("h2").textContent)));
  document.documentElement.dataset.ready = at;
}

const pick = document.getElementById("trace");
data.traces.forEach((trace, at) => pick.append(element("option", { value: at }, trace.name)));
document.getElementById("pick").hidden = data.traces.length < 2;
pick.addEventListener("change", () => show(Number(pick.value)));
function theme() {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  redraws.forEach(draw => draw());
}
document.getElementById("theme").addEventListener("click", theme);
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "d") theme();
  const step = { "[": -1, "]": 1 }[event.key];
  if (step && data.traces[Number(pick.value) + step]) { pick.value = Number(pick.value) + step; show(Number(pick.value)); }
});
show(0);
