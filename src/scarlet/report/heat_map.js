
// Accuracy over two options: a mean over seeds, and over whatever else varies among what is shown.
const [down, across] = ["down", "across"].map((id) => document.getElementById(id));
const cividis = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"]; // safe for the colour-blind

function colourAt(share) {
  const place = Math.min(share * (cividis.length - 1), cividis.length - 1 - 1e-9);
  const bytes = (colour) => colour.match(/\w\w/g).map((part) => parseInt(part, 16));
  const [from, to] = [bytes(cividis[Math.floor(place)]), bytes(cividis[Math.floor(place) + 1])];
  return `rgb(${from.map((part, i) => Math.round(part + (place % 1) * (to[i] - part)))})`;
}

function element(tag, text, attributes = {}) {
  return Object.assign(document.createElement(tag), { textContent: text }, attributes);
}

// The name of an option's value; a method has its colour.
function label(axis, value, scope) {
  const head = element("th", page.axes[axis].values[value], { scope });
  if (page.axes[axis].option === "method") {
    const { colour } = page.variants.find(({ at }) => at[axis] === value);
    head.style.borderInlineStart = `0.3rem solid ${colour}`;
  }
  return head;
}

function cell(mean, share) {
  if (mean === null) return element("td", "–");
  const found = element("td", mean.toFixed(3));
  Object.assign(found.style, { background: colourAt(share), color: share > 0.45 ? "#000" : "#fff" });
  return found;
}

function renewMap(table, y, x) {
  const quantity = table.dataset.quantity;
  const shown = page.variants.filter((variant, i) => isShown(i) && variant[quantity] !== null);
  const valuesOf = (axis) => [...page.axes[axis].values.keys()].filter((i) => shown.some(({ at }) => at[axis] === i));
  const meanAt = (row, column) => {
    const found = shown.filter(({ at }) => at[y] === row && at[x] === column);
    return found.length ? found.reduce((sum, variant) => sum + variant[quantity], 0) / found.length : null;
  };
  const [rows, columns] = [valuesOf(y), valuesOf(x)];
  const means = rows.map((row) => columns.map((column) => meanAt(row, column)));
  const known = means.flat().filter((mean) => mean !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const shareOf = (mean) => (most > least ? (mean - least) / (most - least) : 1);
  const head = element("tr", "");
  head.append(element("th", `${page.axes[y].option} \\ ${page.axes[x].option}`));
  head.append(...columns.map((column) => label(x, column, "col")));
  const body = rows.map((row, i) => {
    const line = element("tr", "");
    line.append(label(y, row, "row"), ...means[i].map((mean) => cell(mean, shareOf(mean))));
    return line;
  });
  table.replaceChildren(table.caption, head, ...body);
  table.parentElement.hidden = !known.length;
}

// Options of which not all cells have the same values, so that the cells differ in more than their row and column; a
// method without the option has none of them.
function unequal(y, x, rest) {
  const shown = page.variants.filter((_, i) => isShown(i));
  const keys = [...new Set(shown.map(({ at }) => `${at[y]} ${at[x]}`))];
  const cells = keys.map((key) => shown.filter(({ at }) => `${at[y]} ${at[x]}` === key));
  const valuesIn = (cell, axis) => [...new Set(cell.map(({ at }) => at[axis]))].filter((i) => page.axes[axis].values[i] !== "–");
  return rest.filter((axis) => new Set(cells.map((cell) => valuesIn(cell, axis).sort().join()).filter(Boolean)).size > 1);
}

// Which options the means are over, and which have one value.
function saidOf(y, x) {
  const rest = [...page.axes.keys()].filter((axis) => axis !== y && axis !== x);
  const over = rest.filter((axis) => chosen[axis] === null).map((axis) => page.axes[axis].option);
  const held = rest.filter((axis) => chosen[axis] !== null);
  const only = held.map((axis) => `${page.axes[axis].option} = ${page.axes[axis].values[chosen[axis]]}`).join(", ");
  const means = `Means of the last evaluated rounds over ${["seeds", ...over].join(", ")}`;
  const apart = unequal(y, x, rest).map((axis) => page.axes[axis].option);
  const warning = apart.length ? ` Cells differ in ${apart.join(", ")} too: choose a value above to compare like with like.` : "";
  return `${means}${only && `; only ${only}`}. Brighter is higher.${warning}`;
}

function renewMaps() {
  const [y, x] = [Number(down.value), Number(across.value)];
  for (const [box, other] of [[down, x], [across, y]]) {
    for (const option of box.options) option.disabled = Number(option.value) === other;
  }
  document.getElementById("heat-mean").textContent = saidOf(y, x);
  for (const table of all(".heat")) renewMap(table, y, x);
}

if (down) {
  for (const box of [down, across]) box.addEventListener("change", renewMaps);
  renewals.push(renewMaps);
}
