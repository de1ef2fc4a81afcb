// The kinds of charts with axes: lines with intervals, and differences with intervals.
'use strict';
// --- scales and axes ---
function niceTicks(low, high, most, whole) {
  const raw = Math.max(whole ? 1 : 0, (high - low) / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10]
                   .map((factor) => factor * power)
                   .find((candidate) => candidate >= raw * 0.999 && (!whole || candidate % 1 === 0));
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}
function logTicks(low, high, most) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const factor of [1, 2, 5]) all.push(Number((factor * 10 ** power).toPrecision(3)));
  const inside = all.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const stride = Math.ceil(inside.length / Math.max(2, most));
  return inside.filter((_, i) => i % stride === 0);
}
// A logarithmic axis of less than a decade may hold fewer than two ticks of its own.
function yTicks(range, log, most) {
  const ticks = log ? logTicks(...range, most) : [];
  return ticks.length > 1 ? ticks : niceTicks(...range, most);
}
// options: zero (begins there), span (least width of the axis), log, bounds.
function rangeOf(values, {zero, span = 0, log, bounds} = {}) {
  const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!known.length) return log ? [0.1, 1] : [0, 1];
  let [low, high] = [smallest(known), largest(known)];
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  const least = Math.max(span, Math.abs(high) * 0.02, 1e-9);
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const pad = 0.05 * (high - low);
  [low, high] = [zero ? Math.min(0, low) : low - pad, high + pad];
  return bounds ? [Math.max(bounds[0], low), Math.min(bounds[1], high)] : [low, high];
}
const scale = ([low, high], [from, to], log) =>
    (log ? (value) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from) :
           (value) => from + ((value - low) / (high - low)) * (to - from));
// Texts of an axis that lie too close to the one before are left out; the last is kept.
function spread(ticks, place, text) {
  const kept = [];
  for (const tick of ticks) {
    const half = widthOf(text(tick)) / 2 + 5;
    if (!kept.length || place(tick) - half > last(kept).right) kept.push({tick, right: place(tick) + half});
  }
  return kept.map(({tick}) => tick);
}
function yAxis(svg, ticks, place, text, left, right) {
  for (const tick of ticks) {
    shape('line', svg, {x1: left, x2: right, y1: place(tick), y2: place(tick), stroke: 'var(--line)'});
    label(svg, left - 6, place(tick) + 4, text(tick), {'text-anchor': 'end', fill: 'var(--faint)'});
  }
}
function xAxis(svg, ticks, place, text, top, bottom, title, width) {
  for (const tick of spread(ticks, place, text)) {
    const half = widthOf(text(tick)) / 2;
    shape('line', svg, {x1: place(tick), x2: place(tick), y1: bottom, y2: bottom + 4, stroke: 'var(--faint)'});
    label(
        svg, Math.max(half, Math.min(width - half, place(tick))), bottom + 17, text(tick),
        {'text-anchor': 'middle', fill: 'var(--faint)'});
  }
  if (title) label(svg, width / 2, bottom + 34, title, {'text-anchor': 'middle'});
}
// Labels at the ends of lines, moved apart.
function endLabels(svg, ends, x, top, bottom, width) {
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, i) => {
    end.y = Math.max(end.y, i ? ends[i - 1].y + kFont + 2 : top + 6);
  });
  for (let i = ends.length - 1, most = bottom - 2; i >= 0; --i, most = ends[i + 1].y - kFont - 2)
    ends[i].y = Math.min(ends[i].y, most);
  for (const {y, series} of ends) fitted(svg, x + 8, y + 4, series.name, width, {fill: series.colour});
}

// --- lines ---
// series: name, colour, marker, dash, level (a horizontal line), points [{ x, y, low, high, n }], thin [[{ x, y }]].
// x: title, values (categories) or none, text, log, whole (ticks at integers); y: title, text and the options of
// rangeOf.
function linesChart(parent, {title, note, x, y, series, small}) {
  const xsOf = (one) => [...one.points, ...(one.thin || []).flat()].map((point) => point.x);
  const xs = x.values || ascending(series.filter((one) => !one.level).flatMap(xsOf));
  if (!xs.length) return undefined;
  const yText = y.text || short, xText = x.text || String;
  const interval = ({low, high}) => (low === undefined ? '' : ` (${yText(low)} to ${yText(high)})`);
  const draw = (svg, width, shown) => {
    const all = shown.flatMap((one) => [...one.points, ...(one.thin || []).flat()]);
    const range = rangeOf(all.flatMap((point) => [point.y, point.low, point.high]), y);
    const height = small ? 210 : 300, top = 22, bottom = height - 44;
    const ticks = yTicks(range, y.log, small ? 4 : 6);
    const left = Math.max(...ticks.map((tick) => widthOf(yText(tick))), 10) + 10;
    const named = width >= 460 && !small && shown.length <= 9;
    const side = named ? Math.min(150, Math.max(...shown.map((one) => widthOf(one.name)), 0)) + 12 : 14;
    const right = width - side, inside = scale(range, [bottom, top], y.log);
    const toY = (value) => Math.max(top, Math.min(bottom, inside(value)));
    const step = x.values ? (right - left) / xs.length : 0;
    const toX = x.values ? (value) => left + (xs.indexOf(value) + 0.5) * step :
                           scale(rangeOf(xs, {zero: !x.log, log: x.log}), [left + 6, right - 6], x.log);
    const lines = shown.filter((one) => !one.level);
    const shift = (one) =>
        (x.values && lines.length > 1 ? (lines.indexOf(one) / (lines.length - 1) - 0.5) * Math.min(24, step * 0.4) : 0);
    yAxis(svg, ticks, toY, yText, left, right);
    fitted(svg, 0, 12, y.title, width, {fill: 'var(--faint)'});
    xAxis(
        svg,
        x.values ||
            (x.log ? logTicks(...rangeOf(xs, x), width / 70) :
                     niceTicks(...rangeOf(xs, {zero: true}), width / 80, x.whole)),
        toX, xText, top, bottom, x.title, width);
    const place = {toX, toY, left, right, log: y.log, bands: !x.values};
    for (const one of lines) drawThin(svg, one, () => shift(one), place);
    for (const one of shown) drawLine(svg, one, one.level ? () => 0 : () => shift(one), place);
    if (named)
      endLabels(
          svg, shown.filter((one) => one.points.length).map((one) => ({series: one, y: toY(last(one.points).y)})),
          right, top, bottom, side - 10);
    return {
      height,
      top,
      bottom,
      count: xs.length,
      nearest: (at) =>
          xs.reduce((best, value, i) => (Math.abs(toX(value) - at) < Math.abs(toX(xs[best]) - at) ? i : best), 0),
      at: (i) => ({
        x: toX(xs[i]),
        lines: [
          `${x.title}: ${xText(xs[i])}`,
          ...shown.flatMap(
              (one) => one.points.filter((point) => point.x === xs[i])
                           .map((point) => `${one.name}: ${yText(point.y)}${interval(point)}`))
        ]
      }),
    };
  };
  const rows = () => [
      ['series', x.title, y.title, 'low', 'high', 'seeds'],
      ...series.flatMap(
          (one) => one.points.map((point) => [one.name, point.x, point.y, point.low, point.high, point.n]))];
  const ends = series.filter((one) => one.points.length && !one.level)
                   .slice(0, 12)
                   .map(
                       (one) => `${one.name}: ${yText(last(one.points).y)}${interval(last(one.points))} at ${
                           xText(last(one.points).x)}`);
  return figure(parent, {title, note, series, draw, rows, small, summary: ends.join('; ')});
}
// Lines of single seeds, below all means. The more there are, the fainter each is.
function drawThin(svg, one, shift, {toX, toY}) {
  const at = (point) => `${toX(point.x) + shift()},${toY(point.y)}`;
  for (const thin of one.thin || [])
    shape('polyline', svg, {
      points: thin.map(at).join(' '),
      fill: 'none',
      stroke: one.colour,
      'stroke-width': 1,
      opacity: Math.min(0.35, 4 / one.thin.length)
    });
}
function drawLine(svg, one, shift, {toX, toY, left, right, log, bands}) {
  const known = one.points.filter((point) => !log || point.y > 0);
  if (!known.length) return;
  if (one.level) {
    const y = toY(known[0].y);
    return void shape(
        'line', svg,
        {x1: left, x2: right, y1: y, y2: y, stroke: one.colour, 'stroke-width': 1.5, 'stroke-dasharray': one.dash});
  }
  const at = (point) => `${toX(point.x) + shift()},${toY(point.y)}`;
  const spans = known.filter((point) => point.low !== undefined && (!log || point.low > 0));
  if (bands && spans.length > 1) {
    const edge = [
      ...spans.map((point) => at({...point, y: point.high})),
      ...[...spans].reverse().map((point) => at({...point, y: point.low}))
    ];
    shape('polygon', svg, {points: edge.join(' '), fill: one.colour, opacity: 0.14});
  } else {
    for (const point of spans) {
      const x = toX(point.x) + shift();
      shape('path', svg, {
        d: `M${x - 3},${toY(point.low)}h6M${x - 3},${toY(point.high)}h6M${x},${toY(point.low)}V${toY(point.high)}`,
        stroke: one.colour,
        fill: 'none'
      });
    }
  }
  shape('polyline', svg, {
    points: known.map(at).join(' '),
    fill: 'none',
    stroke: one.colour,
    'stroke-width': 2,
    'stroke-dasharray': one.dash
  });
  if (known.length <= 30)
    for (const point of known) marker(svg, one, toX(point.x) + shift(), toY(point.y));
}

// --- differences with intervals (forest plot), or bars from zero ---
// items: { name, y, low, high, n, p, pHolm, colour, marker, hollow }
function forestChart(parent, {title, note, xTitle, items, span = 1, text = short}) {
  if (!items.length) return undefined;
  const rowHeight = 22;
  const draw = (svg, width) => {
    const range = rangeOf([0, ...items.flatMap((item) => [item.y, item.low, item.high])], {span});
    const wide = Math.min(width * 0.45, Math.max(...items.map((item) => widthOf(item.name))));
    const left = wide + 12, right = width - 12, top = 8, bottom = top + rowHeight * items.length;
    const toX = scale(range, [left, right]);
    const ticks = niceTicks(...range, (right - left) / 70);
    for (const tick of ticks)
      shape('line', svg, {x1: toX(tick), x2: toX(tick), y1: top, y2: bottom, stroke: 'var(--line)'});
    shape('line', svg, {x1: toX(0), x2: toX(0), y1: top, y2: bottom, stroke: 'var(--ink)'});
    items.forEach((item, i) => {
      const y = top + (i + 0.5) * rowHeight;
      fitted(svg, 0, y + 4, item.name, wide, {});
      if (item.low !== undefined)
        shape('path', svg, {
          d: `M${toX(item.low)},${y - 4}v8M${toX(item.high)},${y - 4}v8M${toX(item.low)},${y}H${toX(item.high)}`,
          stroke: item.colour,
          'stroke-width': 1.5
        });
      marker(svg, item, toX(item.y), y);
    });
    xAxis(svg, ticks, toX, text, top, bottom, xTitle, width);
    return {
      height: bottom + 42,
      top,
      bottom,
      count: items.length,
      nearest: (_, y) => Math.floor((y - top) / rowHeight),
      at: (i) => ({
        x: toX(items[i].y),
        lines: [
          items[i].name,
          text(items[i].y) +
              (items[i].low === undefined ? '' :
                                            ` (${text(items[i].low)} to ${text(items[i].high)}, ${items[i].n} seeds)`)
        ]
      }),
    };
  };
  const rows = () => [
      ['name', xTitle, 'low', 'high', 'seeds', 'p', 'p after Holm'],
      ...items.map((item) => [item.name, item.y, item.low, item.high, item.n, item.p, item.pHolm])];
  return figure(
      parent,
      {title, note, draw, rows, summary: items.slice(0, 12).map((item) => `${item.name}: ${text(item.y)}`).join('; ')});
}
