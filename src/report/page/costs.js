// The section of costs: bytes, FLOPs and times of a run, and of 1,000 tokens at each K.
'use strict';
function trafficTable(parent) {
  const rows = data.costs.arms.flatMap(
      ({traffic}, arm) => traffic.map(
          ({content, up, down},
           i) => [i ? '' : groups[arm].title, content, orDash(up, bytesText), orDash(down, bytesText)]));
  if (!rows.length) return;
  const details = element('details', parent);
  element('summary', details, 'Traffic by content, all rounds and clients, mean over seeds');
  table(details, ['arm', 'content', 'bytes up', 'bytes down'], rows);
}
// Cost of 1,000 tokens of training by experts per token, means over seeds.
function tokenCostTable(parent) {
  const percent = (share) => (100 * share).toFixed(1);
  const row = (one) =>
      [one.top_k || 'dense', orDash(one.flops, compact), orDash(one.flops_share, percent),
       plusMinus(short, {y: one.seconds, low: one.low, high: one.high}), orDash(one.seconds_share, percent)];
  const rows =
      data.costs.arms.flatMap(({by_top_k: byK}, arm) => byK.map((one, i) => [i ? '' : groups[arm].title, ...row(one)]));
  const largest = data.costs.largest_top_k, share = largest ? `% of K = ${largest}` : '%';
  if (rows.length)
    table(parent, ['arm', 'K', 'FLOPs', share, 'seconds', share], rows, {
      caption:
          'Cost of 1,000 tokens of training by experts per token, mean over seeds; seconds as clients measured them'
    });
}
function costSection() {
  const section = sectionOf('cost'), {measures: kinds, arms} = data.costs;
  const shown = kinds.map((kind, i) => ({...kind, i})).filter(({i}) => arms.some(({means}) => means[i] != null));
  if (groups.length > 1) differencesNote(section);
  table(
      section, ['arm', 'runs', ...shown.map(({title}) => title)],
      arms.map(
          ({runs: n, means},
           arm) => [groups[arm].title, n, ...shown.map(({name, i}) => orDash(means[i], costText(name)))]),
      {caption: 'Cost of a run, all rounds and clients, mean over seeds'});
  tokenCostTable(section);
  trafficTable(section);
}
