// The other sections of the page, and the order in which all are drawn.
'use strict';
function headerSection() {
  const names = groups.map(({name}) => name);
  const title = data.is_study ? `study ${data.name}` : names.length < 4 ? names.join(', ') : `${names.length} arms`;
  document.title = `evenkeel report: ${title}`;
  const seeds = ascending(runs.map(({seed}) => seed));
  const seedsText = seeds.length > 12 ? `${seeds.length} seeds from ${seeds[0]} to ${last(seeds)}` :
                                        `seed${seeds.length > 1 ? 's' : ''} ${seeds.join(', ')}`;
  sectionOf('about').textContent =
      `${title[0].toUpperCase()}${title.slice(1)}: ${runs.length} run${runs.length > 1 ? 's' : ''}, ${
          seedsText}, base model ${unique(runs.map(({model}) => model)).join(', ')}. ` +
      'Lines are means over seeds, thin lines single seeds, bands and bars 95 % intervals.';
  for (const section of document.querySelectorAll('main section:not([hidden])'))
    element(
        'a', element('li', sectionOf('contents')), section.querySelector('h2').textContent, {href: `#${section.id}`});
}
function differencesSection() {
  const section = sectionOf('differences');
  section.hidden = !differences.length;
  if (!differences.length) return;
  element('p', section, 'Their figures may differ for these reasons too.');
  table(
      section, ['differs', 'value', 'runs'],
      differences.flatMap(
          ({what, sides}) => sides.map(({value, runs: labels}, i) => [i ? '' : what, value, labels.join(', ')])),
      {caption: 'Differences between the runs', wrap: true});
}
function runsSection() {
  const kinds = data.costs.measures;
  table(
      sectionOf('runs'), ['run', 'arm', 'method', 'seed', 'rounds', 'last loss', ...kinds.map(({title}) => title)],
      runs.map(
          (run) =>
              [run.label, groups[run.arm].name, run.method, run.seed, run.rounds,
               orDash(run.loss, (value) => value.toFixed(4)),
               ...kinds.map(({name}, i) => orDash(run.costs[i], costText(name)))]),
      {caption: 'Runs and what they took'});
}

const kExplained = {
  'budget, K':
      'The share of the checkpoint\'s experts per token that a client activates. K is the number of experts per token.',
  accuracy: 'Correct answers over all rows. An answer that cannot be read counts as wrong.',
  'answers that cannot be read': 'Share of rows whose output holds none of the allowed answers.',
  'accuracy by likelihood of the allowed answers':
      'Share of rows whose correct answer is the likeliest of the allowed ones. Nothing is generated.',
  'log-likelihood of the correct answer': 'Natural logarithm, mean over rows. It moves before accuracy does.',
  'chance, majority answer': 'What guessing gives, and what always giving the most frequent answer gives.',
  '95 % interval': 'Of the mean over seeds, by Student\'s t. It says nothing about other questions or other models.',
  'paired difference':
      'The arm minus the reference with the same seed, averaged over seeds. Data, partition and initial adapter are equal within a pair.',
  'p after Holm\'s correction':
      'Of the paired t-test, corrected for all arms and budgets of a view. Below 0.05, a difference is shown.',
  '(a), (b)':
      'Rank evaluation modes: a cuts the adapter to the client\'s rank to meet a budget, b keeps it and uses K experts.',
  'exported':
      'The exported adapter as other programs route it. Phi and the gating rule are no part of an adapter file.',
  utilisation: 'Share of tokens that chose an expert, weighted by clients. It sums to the mean K over a layer.',
  'entropy, Gini': 'How evenly a layer uses its experts. Entropy is highest, and Gini 0, when all are used alike.',
  'dead experts': 'Experts that no token of the round chose.',
  phi: 'UB-SMoE\'s term that is added to router scores: positive for experts that are used too little.',
  'FLOPs': 'Two per multiply-add, forward and backward, without weight gradients of frozen layers.',
};
function measuresSection() {
  const list = element('dl', sectionOf('measures'));
  for (const [name, text] of Object.entries(kExplained)) {
    element('dt', list, name);
    element('dd', list, text);
  }
}
function configsSection() {
  for (const run of runs) {
    const details = element('details', sectionOf('configs'));
    element('summary', details, `${run.label} (evenkeel ${run.version})`);
    element('pre', details, run.config);
  }
}

for (const draw
         of [differencesSection, comparisonSection, runsSection, progressSection, clientsSection, trainingSection,
             expertsSection, costSection, measuresSection, configsSection, headerSection]) {
  try {
    draw();
  } catch (error) {
    setTimeout(() => {
      throw error;  // the browser reports it, and the other sections are drawn
    });
  }
}
