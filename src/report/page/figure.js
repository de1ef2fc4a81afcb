// A figure: caption, legend, an SVG that is drawn again when its width changes, values under the pointer, downloads.
'use strict';
function element(tag, parent, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}
function shape(tag, parent, attributes = {}, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const kFont = 12;
const pen = document.createElement('canvas').getContext('2d');
pen.font = `${kFont}px system-ui, sans-serif`;
const widthOf = (text) => Math.ceil(pen.measureText(text).width) + 1;
const label = (svg, x, y, text, attributes = {}) => shape(
    'text', svg, {x, y, 'font-size': kFont, 'font-family': 'system-ui, sans-serif', fill: 'var(--ink)', ...attributes},
    text);
// Cuts a text to a width and keeps the whole of it as its title.
function fitted(svg, x, y, text, width, attributes) {
  let cut = text;
  while (cut.length > 1 && widthOf(cut) > width) cut = `${cut.slice(0, -2)}…`;
  const made = label(svg, x, y, cut, attributes);
  if (cut !== text) shape('title', made, {}, text);
  return made;
}

// Markers tell series apart without colour.
const kMarkers = [
  (x, y) => `M${x - 4},${y}a4,4 0 1,0 8,0a4,4 0 1,0 -8,0`,
  (x, y) => `M${x - 4},${y}a4,4 0 1,0 8,0a4,4 0 1,0 -8,0`,
  (x, y) => `M${x - 4},${y - 4}h8v8h-8z`,
  (x, y) => `M${x},${y - 5}l5,9h-10z`,
];
const marker = (svg, series, x, y) => shape('path', svg, {
  d: kMarkers[(series.marker || 0) % kMarkers.length](x, y),
  fill: series.hollow ? 'var(--paper)' : series.colour,
  stroke: series.colour,
  'stroke-width': 1.5
});

function legendOf(figure, all, hidden, redraw) {
  if (all.length < 2) return;
  const list = element('ul', figure, undefined, {class: 'legend'});
  for (const series of all) {
    const button = element('button', element('li', list), undefined, {type: 'button', 'aria-pressed': 'true'});
    const swatch = shape('svg', button, {width: 22, height: 10, 'aria-hidden': 'true'});
    shape(
        'line', swatch,
        {x1: 0, x2: 22, y1: 5, y2: 5, stroke: series.colour, 'stroke-width': 2, 'stroke-dasharray': series.dash});
    if (!series.level) marker(swatch, series, 11, 5);
    button.append(series.name);
    button.onclick = () => {
      hidden.has(series.name) ? hidden.delete(series.name) : hidden.add(series.name);
      button.setAttribute('aria-pressed', String(!hidden.has(series.name)));
      redraw();
    };
  }
}

// --- downloads ---
function save(name, type, text) {
  const link =
      element('a', document.body, undefined, {download: name, href: URL.createObjectURL(new Blob([text], {type}))});
  link.click();
  URL.revokeObjectURL(link.href);
  link.remove();
}
const csvCell = (value) =>
    (value === undefined || value === null ? '' :
         /[",\n]/.test(value)              ? `"${String(value).replaceAll('"', '""')}"` :
                                             String(value));
const csvText = ([titles, ...rows]) => [titles, ...rows].map((cells) => cells.map(csvCell).join(',')).join('\n') + '\n';
// A file of its own has no style sheet: colours become values.
function svgText(svg) {
  const style = getComputedStyle(document.documentElement);
  const copy = svg.cloneNode(true);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.removeAttribute('tabindex');
  copy.querySelectorAll('.cursor').forEach((node) => node.remove());
  copy.prepend(shape('rect', null, {width: '100%', height: '100%', fill: 'var(--paper)'}));
  return new XMLSerializer().serializeToString(copy).replace(
      /var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim());
}
const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 60);

function dataTable(parent, rows) {
  const details = element('details', parent);
  element('summary', details, 'table');
  details.ontoggle = () => {
    if (details.open && details.childElementCount === 1) table(details, rows[0], rows.slice(1));
  };
}

// spec: title, note, summary (read aloud), small (no legend), series (with name, colour), rows() as a table for CSV,
// and draw(svg, width, shown series), which returns { height, at(index) -> { x, lines }, count } for the pointer and
// the arrow keys.
function figure(parent, spec) {
  const box = element('figure', parent);
  element('figcaption', box, spec.title);
  if (spec.note) element('p', box, spec.note, {class: 'note'});
  const hidden = new Set();
  let svg, drawn, index = -1;
  const tip = element('div', null, undefined, {class: 'tip', role: 'status'});
  const redraw = () => {
    const width = Math.max(260, box.clientWidth || 600);
    const made = shape('svg', null, {role: 'img', tabindex: 0, 'aria-label': `${spec.title}. ${spec.summary || ''}`});
    drawn = spec.draw(made, width, (spec.series || []).filter((series) => !hidden.has(series.name)));
    made.setAttribute('viewBox', `0 0 ${width} ${drawn.height}`);
    svg ? svg.replaceWith(made) : box.append(made);
    svg = made;
    tip.replaceChildren();
    watch();
  };
  const point = (to) => {
    svg.querySelectorAll('.cursor').forEach((node) => node.remove());
    tip.replaceChildren();
    index = Math.max(0, Math.min(drawn.count - 1, to));
    const {x, lines} = drawn.at(index);
    shape('line', svg, {
      class: 'cursor',
      x1: x,
      x2: x,
      y1: drawn.top,
      y2: drawn.bottom,
      stroke: 'var(--faint)',
      'stroke-dasharray': '2 3'
    });
    for (const text of lines) element('div', tip, text);
    tip.style.left = `${x > svg.clientWidth / 2 ? Math.max(0, x - tip.offsetWidth - 8) : x + 8}px`;
    tip.style.top = `${svg.offsetTop + 8}px`;
  };
  const leave = () => {
    tip.replaceChildren();
    svg.querySelectorAll('.cursor').forEach((node) => node.remove());
  };
  function watch() {
    if (!drawn.count) return;
    svg.onpointermove = (event) => point(drawn.nearest(event.offsetX, event.offsetY));
    svg.onpointerleave = svg.onblur = leave;
    svg.onkeydown = (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      point(index + step);
    };
  }
  if (!spec.small) legendOf(box, spec.series || [], hidden, redraw);
  redraw();
  box.append(tip);
  const actions = element('div', box, undefined, {class: 'actions'});
  element('button', actions, 'CSV', {type: 'button', 'aria-label': `${spec.title} as CSV`}).onclick = () =>
      save(`${fileName(spec.title)}.csv`, 'text/csv', csvText(spec.rows()));
  element('button', actions, 'SVG', {type: 'button', 'aria-label': `${spec.title} as SVG`}).onclick = () =>
      save(`${fileName(spec.title)}.svg`, 'image/svg+xml', svgText(svg));
  dataTable(actions, spec.rows());
  let drawnAt = box.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(box.clientWidth - drawnAt) < 2) return;
    drawnAt = box.clientWidth;
    redraw();
  }).observe(box);
  return box;
}

// groupTitles: [title, columns] pairs above the titles.
function table(parent, titles, rows, {lastIsMean = false, groupTitles, caption, wrap} = {}) {
  const made = element(
      'table',
      element(
          'div', parent, undefined, {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption || 'table'}),
      undefined, wrap ? {class: 'wrap'} : {});
  if (caption) element('caption', made, caption);
  const head = element('thead', made);
  if (groupTitles) {
    const over = element('tr', head);
    for (const [title, columns] of groupTitles)
      element('th', over, title, {class: 'group', colspan: columns, scope: 'colgroup'});
  }
  const under = element('tr', head);
  for (const title of titles) element('th', under, title, {scope: 'col'});
  const body = element('tbody', made);
  rows.forEach((cells, i) => {
    const row = element('tr', body, undefined, lastIsMean && i === rows.length - 1 ? {class: 'mean'} : {});
    cells.forEach(
        (cell, column) =>
            element(column ? 'td' : 'th', row, cell === undefined ? '–' : cell, column ? {} : {scope: 'row'}));
  });
  return made;
}
