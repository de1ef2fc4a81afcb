#include "report/model_card.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/plain/number_text.h"
#include "records/run_costs.h"
#include "report/score_cells.h"
#include "report/score_table.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

/// Quotes text for YAML, which accepts JSON strings.
std::string quoted(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

/// Removes characters that would be markup in a table cell or a list item.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '|' || c == '\n' || c == '`' || c == '<'; }, ' ');
  return text;
}

std::string number(double value) { return concat(value); }

std::string_view library_of(ExportFormat format) {
  if (format == ExportFormat::kMerged) return "transformers";
  return format == ExportFormat::kGguf ? "gguf" : "peft";
}

std::string header(const records::RunRecords& run, const CardSubject& subject) {
  const auto base =
      subject.base_model.empty() ? std::string() : concat("base_model: ", quoted(subject.base_model), '\n');
  std::string text =
      concat("---\n", base, "library_name: ", library_of(subject.format), "\npipeline_tag: text-generation\ntags:\n");
  for (const std::string_view tag : {"evenkeel", "federated-learning", "lora"}) text += concat("- ", tag, '\n');
  return concat(text, "- ", quoted(run.method), "\n---\n\n");
}

/// Counts values: "2 of 0.125, 2 of 1".
std::string counted(std::span<const double> values) {
  std::map<double, int64_t> counts;
  for (const double value : values) ++counts[value];
  std::vector<std::string> all;
  for (const auto& [value, count] : counts) all.push_back(concat(count, " of ", value));
  return join(all);
}

std::string gates(const CardSubject& subject) {
  const auto& facts = subject.facts;
  if (!facts.has_experts) return {};
  if (nn::renormalises(facts.router.gate_norm, facts.gates.renormalise))
    return "renormalised over the selected experts";
  return facts.gates.score == nn::ScoreFunction::kSigmoid ? "sigmoids, not renormalised"
                                                          : "softmax over all experts, not renormalised";
}

/// Returns what a run spent that protects its clients; empty for other runs.
std::string privacy_of(const records::RunRecords& run) {
  if (run.rounds.empty() || !run.rounds.back().privacy) return {};
  const auto& last = *run.rounds.back().privacy;
  return concat("each client: epsilon ", number(last.epsilon), " at delta ", number(last.delta),
                last.simulated ? " (simulated, protects nobody)" : "");
}

std::string facts_table(const records::RunRecords& run, const fed::RunConfig& config, const CardSubject& subject) {
  const auto cost = records::cost_of(run);
  std::vector<double> budgets;
  for (const auto& plan : config.plans()) budgets.push_back(plan.budget);
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"base model", subject.base_model},
      {"method", plain(concat(config->method.entry().title, " (", config->method.entry().paper, ")"))},
      {"rounds", number(static_cast<double>(run.rounds.size()))},
      {"clients", concat(config->clients.count, ", budgets ", counted(budgets))},
      {"rank, alpha", concat(subject.scale.rank, ", ", subject.scale.alpha)},
      {"adapted", plain(join(subject.targets))},
      {"gates", gates(subject)},
      {"training rows", plain(join(config->data.task))},
      {"tokens trained on", cost.tokens ? compact(*cost.tokens) : "withheld"},
      {"privacy", privacy_of(run)},
      {"bytes sent by clients", compact(cost.bytes_up)},
      {"seed", number(static_cast<double>(run.seed))},
      {"made by", plain(concat("evenkeel ", run.manifest.value("version", "")))}};
  std::string text = "| | |\n| --- | --- |\n";
  for (const auto& [name, value] : rows)
    if (!value.empty()) text += concat("| ", name, " | ", value, " |\n");
  return text + '\n';
}

/// Returns a table with one row per budget and one column per way of serving and rank evaluation mode.
std::string scores_of(std::span<const scoring::TaskScore> scores, const scoring::Measure& measure) {
  using Column = std::pair<scoring::ServedBy, std::string>;
  std::map<double, std::map<Column, std::pair<double, double>>> sums;
  std::map<double, int64_t> top_k;
  std::set<Column> columns;
  std::set<std::string> tasks;
  for (const auto& score : scores) {
    const auto value = measure.of(score);
    if (!value) continue;
    auto& [sum, count] = sums[score.budget][{score.served_by, score.rank_eval_mode}];
    sum += *value, ++count;
    if (score.rank_eval_mode != "a") top_k[score.budget] = score.top_k;
    columns.emplace(score.served_by, score.rank_eval_mode);
    tasks.insert(score.task);
  }
  if (sums.empty()) return {};
  const auto mean = [&](const auto& sum) { return measure_cell(sum.first / static_cast<double>(sum.second), measure); };
  std::string titles = "| budget | K |", rule = "| --- | --- |", rows;
  for (const auto& [by, mode] : columns) {
    titles += concat(' ', served_name(by), mode.empty() ? "" : concat(" (", mode, ")"), " |");
    rule += " --- |";
  }
  for (const auto& [budget, row] : sums) {
    rows +=
        concat("| ", budget, " | ", top_k.contains(budget) ? number(static_cast<double>(top_k[budget])) : "-", " |");
    for (const auto& column : columns) {
      const auto found = row.find(column);
      rows += found == row.end() ? std::string(" - |") : concat(' ', mean(found->second), " |");
    }
    rows += '\n';
  }
  return concat(measure.title, "; mean over ", plain(join(tasks)), ".\n\n", titles, '\n', rule, '\n', rows, '\n');
}

std::string scores_section(const records::RunRecords& run) {
  const auto scores = run.scores(run.last_evaluated());
  std::string text;
  for (const auto& measure : scoring::measures()) text += scores_of(scores, measure);
  if (text.empty()) return text;
  return concat("## Scores after round ", run.last_evaluated(), "\n\n", text);
}

std::string served_section(const CardSubject& subject) {
  std::string text = "## What serves it\n\n";
  for (const auto& served : serving(subject.format, subject.facts)) text += concat("- ", serving_line(served), '\n');
  return text + '\n';
}

/// Returns the config argument for the gates, such as ", norm_topk_prob=True", if the model's config.json has such a
/// key.
std::string gate_argument(const CardSubject& subject) {
  const auto& gates = subject.facts.gates;
  if (gates.key.empty()) return {};
  const bool sum_to_one = nn::renormalises(subject.facts.router.gate_norm, gates.renormalise);
  return concat(", ", gates.key, sum_to_one ? "=True" : "=False");
}

std::string loading(const CardSubject& subject) {
  if (subject.format == ExportFormat::kGguf)
    return "```sh\nllama-server -m base.gguf --lora adapter.gguf\n```\n\n`base.gguf` is the base model as llama.cpp's "
           "converter writes it.\n";
  if (subject.format == ExportFormat::kMerged)
    return "```python\nfrom transformers import AutoModelForCausalLM\n"
           "model = AutoModelForCausalLM.from_pretrained(\"<this folder>\")\n```\n";
  return concat("```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\nbase = ",
                "AutoModelForCausalLM.from_pretrained(",
                quoted(subject.base_model.empty() ? "<the base model>" : subject.base_model), gate_argument(subject),
                ")\nmodel = PeftModel.from_pretrained(base, \"<this folder>\")\n```\n");
}

std::string loading_section(const CardSubject& subject) {
  std::string text = "## How to load it\n\n" + loading(subject);
  if (subject.facts.has_experts)
    text +=
        "\nThe number of experts per token, K, is `num_experts_per_tok` of the base model's config.json: any K of the "
        "table above.\n";
  return text;
}

}  // namespace

std::string model_card(const records::RunRecords& run, const fed::RunConfig& config, const CardSubject& subject) {
  return concat(
      header(run, subject), "# ", plain(run.label), "\n\n",
      subject.format == ExportFormat::kMerged ? "A checkpoint with a LoRA adapter merged into it" : "A LoRA adapter",
      ", trained by ", config->clients.count, " clients together.\n\n", facts_table(run, config, subject),
      scores_section(run), served_section(subject), loading_section(subject));
}

}  // namespace evenkeel::report
