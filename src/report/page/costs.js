// The section of costs: bytes, FLOPs and times of a run, and of 1,000 tokens at each K.
'use strict';
const total = (run, key) => sum(run.rounds.map((round) => round[key]));
function trafficTable(parent) {
  const parts = (run, key) => run.rounds.reduce((all, round) => {
    for (const [content, bytes] of Object.entries(round[key] || {})) all[content] = (all[content] || 0) + bytes;
    return all;
  }, {});
  const rows = groups.flatMap((group) => {
    const sums = (key) => group.runs.map((run) => parts(run, key));
    const [up, down] = [sums('bytes_up_parts'), sums('bytes_down_parts')];
    const cell = (all, content) =>
        (all.some((one) => content in one) ? bytesText(mean(all.map((one) => one[content] || 0))) : '–');
    return unique([...up, ...down].flatMap(Object.keys))
        .sort()
        .map((content, i) => [i ? '' : nameOf(group), content, cell(up, content), cell(down, content)]);
  });
  if (rows.length) {
    const details = element('details', parent);
    element('summary', details, 'Traffic by content, all rounds and clients, mean over seeds');
    table(details, ['arm', 'content', 'bytes up', 'bytes down'], rows);
  }
}
// Cost of 1,000 tokens of training by experts per token, means over seeds.
function tokenCostTable(parent) {
  const topKs = ascending(runs.flatMap((run) => run.client_costs.map((cost) => cost.top_k)));
  const largest = last(topKs);
  const costOf = (run, k, key) => {
    const found = run.client_costs.filter((cost) => cost.top_k === k);
    const counted = key === 'seconds' ? 'timed_tokens' : 'tokens';
    const tokens = sum(found.map((cost) => cost[counted])), value = sum(found.map((cost) => cost[key]));
    return tokens && value ? 1000 * value / tokens : undefined;
  };
  const shareOf = (run, k, key) => {
    const [part, whole] = [costOf(run, k, key), costOf(run, largest, key)];
    return part === undefined || whole === undefined ? undefined : 100 * part / whole;
  };
  const cell = (group, pick, text) => {
    const values = ofSeeds(group, pick);
    return values.length ? text(summary(values)) : '–';
  };
  const withInterval = ({y, low, high}) => (low === undefined ? short(y) : `${short(y)} ± ${short((high - low) / 2)}`);
  const percent = ({y}) => y.toFixed(1);
  const row = (group, k) =>
      [k || 'dense', cell(group, (run) => costOf(run, k, 'flops'), ({y}) => compact(y)),
       cell(group, (run) => shareOf(run, k, 'flops'), percent),
       cell(group, (run) => costOf(run, k, 'seconds'), withInterval),
       cell(group, (run) => shareOf(run, k, 'seconds'), percent)];
  const has = (group, k) => group.runs.some((run) => run.client_costs.some((cost) => cost.top_k === k));
  const rows = groups.flatMap(
      (group) => topKs.filter((k) => has(group, k)).map((k, i) => [i ? '' : nameOf(group), ...row(group, k)]));
  const share = largest ? `% of K = ${largest}` : '%';
  if (rows.length)
    table(parent, ['arm', 'K', 'FLOPs', share, 'seconds', share], rows, {
      caption:
          'Cost of 1,000 tokens of training by experts per token, mean over seeds; seconds as clients measured them'
    });
}
function costSection() {
  const section = sectionOf('cost');
  const kinds = [
    ['bytes up', bytesText, (run) => total(run, 'bytes_up')],
    ['bytes down', bytesText, (run) => total(run, 'bytes_down')], ['FLOPs', compact, (run) => total(run, 'flops')],
    ['tokens', compact, (run) => total(run, 'tokens')],
    [
      'measured seconds', duration,
      (run) => (run.rounds.every((round) => 'wall' in round) ? total(run, 'wall') : undefined)
    ],
    ['simulated seconds', duration, (run) => (run.rounds.length ? last(run.rounds).seconds : undefined)]
  ];
  const shown = kinds.filter(([, , pick]) => runs.some((run) => pick(run) !== undefined));
  table(
      section, ['arm', 'runs', ...shown.map(([name]) => name)],
      groups.map((group) => [nameOf(group), group.runs.length, ...shown.map(([, text, pick]) => {
                   const values = ofSeeds(group, pick);
                   return values.length ? text(mean(values)) : '–';
                 })]),
      {caption: 'Cost of a run, all rounds and clients, mean over seeds'});
  tokenCostTable(section);
  trafficTable(section);
}
