// Heat maps of layers and experts, and scatter plots.
'use strict';
// --- heat map: layers down, experts across ---
const kBlues = [[247, 250, 255], [147, 197, 253], [37, 99, 235], [30, 27, 75]];
const kDiverging = [[158, 66, 20], [244, 178, 120], [246, 246, 246], [126, 178, 221], [20, 78, 138]];
function shadeOf(share, stops) {
  const at = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1), low = Math.floor(at);
  return `rgb(${stops[low].map((c, i) => Math.round(c + (at - low) * (stops[low + 1][i] - c))).join()})`;
}
function colourBar(svg, x, y, width, [low, high], stops) {
  for (let i = 0; i < 40; ++i)
    shape('rect', svg, {x: x + (i * width) / 40, y, width: width / 40 + 0.5, height: 9, fill: shadeOf(i / 39, stops)});
  label(svg, x, y + 22, short(low), {fill: 'var(--faint)'});
  label(svg, x + width, y + 22, short(high), {'text-anchor': 'end', fill: 'var(--faint)'});
}
// map: [layer][expert]; range: of the colours; layers: their names.
function heatChart(parent, {title, note, map, range, layers, diverging}) {
  const stops = diverging ? kDiverging : kBlues, [low, high] = range;
  const draw = (svg, width) => {
    const left = 14 + Math.max(...layers.map(widthOf)), top = 18, cell = Math.max(12, Math.min(22, 300 / map.length));
    const across = (width - left - 8) / map[0].length, bottom = top + cell * map.length;
    label(svg, 0, 12, 'layer', {fill: 'var(--faint)'});
    const every = Math.ceil((kFont + 2) / cell);
    map.forEach((row, l) => {
      if (l % every === 0)
        label(svg, left - 6, top + (l + 0.5) * cell + 4, layers[l], {'text-anchor': 'end', fill: 'var(--faint)'});
      row.forEach((value, e) => shape('rect', svg, {
                    x: left + e * across,
                    y: top + l * cell,
                    width: across + 0.3,
                    height: cell + 0.3,
                    fill: shadeOf((value - low) / (high - low || 1), stops)
                  }));
    });
    const place = (e) => left + (e + 0.5) * across,
          step = [1, 2, 4, 8, 16, 32, 64].find((one) => map[0].length / one <= 10) || 100;
    xAxis(svg, map[0].map((_, e) => e).filter((e) => e % step === 0), place, String, top, bottom, 'expert', width);
    colourBar(svg, left, bottom + 44, Math.min(220, width - left - 8), range, stops);
    return {
      height: bottom + 72,
      top,
      bottom,
      count: map.length * map[0].length,
      nearest: (x, y) => Math.max(0, Math.min(map.length - 1, Math.floor((y - top) / cell))) * map[0].length +
          Math.max(0, Math.min(map[0].length - 1, Math.floor((x - left) / across))),
      at: (i) => ({
        x: place(i % map[0].length),
        lines: [`layer ${layers[Math.floor(i / map[0].length)]}, expert ${i % map[0].length}: ${short(map.flat()[i])}`]
      }),
    };
  };
  const rows =
      () => [['layer', 'expert', 'value'], ...map.flatMap((row, l) => row.map((value, e) => [layers[l], e, value]))];
  return figure(parent, {
    title,
    note,
    draw,
    rows,
    summary: `${map.length} layers, ${map[0].length} experts, from ${short(smallest(map.flat()))} to ${
        short(largest(map.flat()))}`
  });
}

// --- scatter plot with a line of least squares ---
function scatterChart(parent, {title, note, x, y, points, line, colour}) {
  const draw = (svg, width) => {
    const xRange = rangeOf(points.map((point) => point.x), {}), yRange = rangeOf(points.map((point) => point.y), {});
    const height = 300, top = 22, bottom = height - 44, ticks = niceTicks(...yRange, 6);
    const left = Math.max(...ticks.map((tick) => widthOf(short(tick)))) + 10, right = width - 12;
    const toX = scale(xRange, [left, right]), toY = scale(yRange, [bottom, top]);
    yAxis(svg, ticks, toY, short, left, right);
    label(svg, 0, 12, y, {fill: 'var(--faint)'});
    xAxis(svg, niceTicks(...xRange, width / 80), toX, short, top, bottom, x, width);
    for (const point of points)
      shape('circle', svg, {cx: toX(point.x), cy: toY(point.y), r: 2, fill: colour, opacity: 0.5});
    if (line) {
      const value = (at) => line.intercept + line.slope * at;
      shape('line', svg, {
        x1: toX(xRange[0]),
        x2: toX(xRange[1]),
        y1: toY(value(xRange[0])),
        y2: toY(value(xRange[1])),
        stroke: 'var(--ink)',
        'stroke-dasharray': '5 4',
        'clip-path': 'none'
      });
    }
    return {height, top, bottom, count: 0};
  };
  const rows =
      () => [['layer', 'expert', x, y], ...points.map((point) => [point.layer, point.expert, point.x, point.y])];
  return figure(parent, {title, note, draw, rows, summary: note});
}
