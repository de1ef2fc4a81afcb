// Groups the runs of the page and computes means, intervals and paired differences over seeds.
'use strict';
const {runs, differences, study} = JSON.parse(document.getElementById('data').textContent);

const unique = (values) => [...new Set(values)];
const ascending = (values) => unique(values).sort((a, b) => a - b);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;
const last = (values) => values[values.length - 1];

// Two-sided 95 % quantiles of Student's t with 1 .. 30 degrees of freedom.
const kStudent = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16,  2.145, 2.131,
  2.12,   2.11,  2.101, 2.093, 2.086, 2.08,  2.074, 2.069, 2.064, 2.06,  2.056, 2.052, 2.048, 2.045, 2.042
];

// Mean of one value per seed and its 95 % interval. One seed has no interval.
function summary(values) {
  const y = mean(values), n = values.length;
  if (n < 2) return {y, n};
  const deviation = Math.sqrt(sum(values.map((value) => (value - y) ** 2)) / (n - 1));
  const half = (kStudent[n - 2] || 1.96) * deviation / Math.sqrt(n);
  return {y, n, low: y - half, high: y + half};
}

// --- groups: the runs of one arm of a study, or of one method, one run per seed ---
const seedsRepeat = (members) => unique(members.map((run) => run.seed)).length < members.length;
function groupOf(run) {
  if (run.arm) return run.arm;
  const sameMethod = runs.filter((other) => other.method === run.method && !other.arm);
  return seedsRepeat(sameMethod) ? run.label : run.method;
}
const groups = unique(runs.map(groupOf)).map((name) => ({name, runs: runs.filter((run) => groupOf(run) === name)}));
const reference = groups.find((group) => study && group.name === study.reference) || groups[0];
// The reference is grey. Eight colours, then the same with another marker.
groups.filter((group) => group !== reference || groups.length === 1).forEach((group, i) => {
  group.colour = `var(--c${i % 8})`;
  group.marker = Math.floor(i / 8) + 1;
});
if (!reference.colour) Object.assign(reference, {colour: 'var(--grey)', marker: 0});
const nameOf = (group) => (group === reference && groups.length > 1 ? `${group.name} (reference)` : group.name);

// --- scores ---
for (const run of runs) {
  run.ofClients = run.evaluations.filter((e) => 'client' in e);
  run.evaluations = run.evaluations.filter((e) => !('client' in e));
}
const scores = runs.flatMap((run) => run.evaluations);
const kChoice = {
  accuracy: 'accuracy',
  invalid_rate: 'unreadable answers',
  accuracy_valid: 'accuracy among readable answers',
  accuracy_likelihood: 'accuracy by likelihood',
  log_likelihood: 'log-likelihood of the correct answer'
};
const kText = {
  exact_match: 'exact match',
  f1: 'F1 of words',
  bert_score: 'BERTScore F1',
  empty_rate: 'empty answers'
};
const kLikelihood = {
  nll: 'negative log-likelihood per answer token',
  perplexity: 'perplexity of the answers'
};
const kMeasures = {
  ...kChoice,
  ...kText,
  ...kLikelihood
};
const isShare = (measure) => !(measure in kLikelihood) && measure !== 'log_likelihood';
const lessIsBetter = (measure) => measure in kLikelihood || measure === 'invalid_rate' || measure === 'empty_rate';
const scaled = (measure, value) => (isShare(measure) ? 100 * value : value);
const unitOf = (measure) => (isShare(measure) ? 'percent' : measure === 'perplexity' ? 'perplexity' : 'nats');
const tasks = unique(scores.map((e) => e.task));
const budgets = ascending(scores.map((e) => e.budget));
// A rank method has two ways to meet a budget, and an exported adapter may be routed in other ways than the run's.
const routingOf = (e) => (e.as_exported ? `exported: ${e.served_by.replace('_', ' ')}` : 'in the run');
const routings = unique(scores.map(routingOf));
const modes = (group, routing) => unique(
    group.runs.flatMap((run) => run.evaluations).filter((e) => routingOf(e) === routing).map((e) => e.reading || ''));
const kOf = new Map(scores.filter((e) => !e.reading || e.reading === 'b').map((e) => [e.budget, e.top_k]));
const budgetName = (budget) => (kOf.get(budget) ? `K = ${kOf.get(budget)}` : `budget ${budget}`);
const lastRound = (run) => Math.max(-1, ...run.evaluations.map((e) => e.round));
const measuresOf = (task) =>
    Object.keys(kMeasures).filter((key) => scores.some((e) => (!task || e.task === task) && key in e));

// One value of one run: the mean over its tasks, or undefined if a task that the other runs have is missing.
function scoreOf(run, {task, budget, round = lastRound(run), measure, routing = 'in the run', mode = ''}) {
  const found = run.evaluations.filter(
      (e) => e.round === round && e.budget === budget && (!task || e.task === task) && (e.reading || '') === mode &&
          routingOf(e) === routing && e[measure] !== undefined && e[measure] !== null);
  const expected = task ? 1 : tasks.filter((name) => measuresOf(name).includes(measure)).length;
  return found.length && found.length >= expected ? scaled(measure, mean(found.map((e) => e[measure]))) : undefined;
}
const meanOverBudgets = (run, at) => {
  const all = budgets.map((budget) => scoreOf(run, {...at, budget})).filter((value) => value !== undefined);
  return all.length === budgets.length ? mean(all) : undefined;
};
const ofSeeds = (group, pick) => group.runs.map(pick).filter((value) => value !== undefined);
// Differences to the reference, seed by seed.
function pairedDifferences(group, pick, baseMode, mode) {
  return group.runs.flatMap((run) => {
    const other = reference.runs.find((candidate) => candidate.seed === run.seed);
    const [mine, theirs] = [pick(run, mode), other && pick(other, baseMode)];
    return mine === undefined || theirs === undefined ? [] : [mine - theirs];
  });
}
// Chance and majority answers depend on the questions alone.
function levelOf(key, task) {
  const found = tasks.filter((name) => !task || name === task)
                    .map((name) => scores.find((e) => e.task === name && key in e))
                    .filter(Boolean)
                    .map((e) => e[key]);
  return found.length ? 100 * mean(found) : undefined;
}

// --- numbers as text ---
function compact(value, unit = '') {
  const steps = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let step = 0;
  for (; Math.abs(value) >= 1000 && step + 1 < steps.length; ++step) value /= 1000;
  const text = String(Number(value.toPrecision(3)));
  return steps[step] || unit ? `${text} ${steps[step]}${unit}`.trim() : text;
}
const bytesText = (value) => compact(value, 'B');
const short = (value) => (value === undefined ? '–' : String(Number(value.toPrecision(4))));
const duration = (seconds) =>
    (seconds < 120 ? `${short(seconds)} s` :
         seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` :
                          `${(seconds / 3600).toFixed(1)} h`);
const shownScore = (measure, value) => (value === undefined ? '–' : isShare(measure) ? value.toFixed(1) : short(value));
const plusMinus = (measure, {y, low, high}) =>
    (low === undefined ? shownScore(measure, y) :
                         `${shownScore(measure, y)} ± ${shownScore(measure, (high - low) / 2)}`);
