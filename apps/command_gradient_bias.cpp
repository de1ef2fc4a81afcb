#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "base/format/limits.h"
#include "base/plain/json.h"
#include "base/plain/number_text.h"
#include "comparison/bias_intervals.h"
#include "report/table.h"

namespace evenkeel::apps {
namespace {

struct GradientBiasFlags {
  MethodFlag method;
  std::vector<std::string> runs;
  std::string base, data, device;
  int64_t limit = 32;
  bool json = false;
};

void print_json(const comparison::BiasRow& row, size_t runs) {
  const auto number = [](const std::optional<double>& value) { return value ? OrderedJson(*value) : OrderedJson(); };
  OrderedJson line{
      {"gradient_of", config::name_of(row.of)}, {"layer", row.layer}, {"top_k", row.top_k}, {"runs", runs}};
  for (size_t i = 0; i < row.measures.size(); ++i) {
    const std::string name(train::kBiasMeasures[i].name);
    const auto& [value, interval] = row.measures[i];
    line[name] = number(value);
    line[name + "_low"] = interval ? OrderedJson(interval->low) : OrderedJson();
    line[name + "_high"] = interval ? OrderedJson(interval->high) : OrderedJson();
  }
  std::cout << line.dump() << '\n';
}

report::Cell cell_of(const comparison::BiasEstimate& estimate) {
  if (!estimate.value) return {.text = "-"};
  report::Cell cell{.text = fixed(*estimate.value, 3)};
  if (estimate.interval)
    cell.interval = concat("[", fixed(estimate.interval->low, 3), ", ", fixed(estimate.interval->high, 3), "]");
  return cell;
}

/// Returns the table of one kind of gradient.
report::Table table_of(const std::vector<comparison::BiasRow>& rows, fed::GradientOf of) {
  report::Table table{
      .title = of == fed::GradientOf::kAllRows ? "gradients of all rows" : "gradients of single batches",
      .head = {"layer", "K"},
      .keys = 2};
  for (const auto& measure : train::kBiasMeasures) table.head.emplace_back(measure.name);
  for (const auto& row : rows) {
    if (row.of != of) continue;
    std::vector<report::Cell> cells{{.text = row.layer, .is_number = false}, {.text = std::to_string(row.top_k)}};
    for (const auto& measure : row.measures) cells.push_back(cell_of(measure));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// Refuses a run that is named twice, which would make intervals over runs too narrow.
void check_different(const std::vector<std::string>& runs) {
  std::set<std::filesystem::path> folders;
  for (const auto& run : runs)
    EK_CHECK(folders.insert(std::filesystem::weakly_canonical(run)).second, kConfig, "--run names ", run,
             " twice, allowed: each run once");
}

void run_gradient_bias_command(const GradientBiasFlags& flags) {
  limits::check_integer("--limit", flags.limit, 1, limits::kRows);
  check_different(flags.runs);
  std::vector<std::vector<fed::GradientBias>> runs;
  for (const auto& run : flags.runs)
    runs.push_back(fed::run_gradient_bias({run, flags.limit, flags.data, flags.device, flags.base}));
  const auto rows = comparison::bias_rows(runs);
  for (const auto& row : rows)
    if (flags.json) print_json(row, runs.size());
  if (flags.json) return;
  auto batches = table_of(rows, fed::GradientOf::kBatch);
  batches.note = concat("bias: |B|^2 / |grad F|^2, of which bias_idle on experts without a token; predicted: by the ",
                        "corollary; 95 % intervals over ", runs.size() == 1 ? "rows" : "runs");
  std::cout << report::text_of(std::vector{table_of(rows, fed::GradientOf::kAllRows), batches});
}

}  // namespace

void add_gradient_bias_command(CLI::App& program) {
  auto flags = std::make_shared<GradientBiasFlags>();
  auto* command = program.add_subcommand("gradient-bias", "bias of a run's gradients with fewer experts per token");
  command->footer(
      "Example: evenkeel gradient-bias --run runs/demo-fedit --limit 64\n\n"
      "Compares the gradient of test rows with K experts per token, g_K, with that of K_max, grad F, for every K\n"
      "of evaluate.budgets: by layer, as the median over layers, and for all layers together. B = grad F - g_K is the\n"
      "bias of the UB-SMoE paper's Theorem 4.1. Beside it is what the corollary predicts from how often the experts\n"
      "are chosen. Measured are the gradient of all rows, and those of single batches of train.batch_size rows, as of\n"
      "an optimiser step. With several runs, such as the seeds of a study, values are means over the runs.");
  command->add_option("--run", flags->runs, "run folder, once for each seed")->required();
  add_base_flag(*command, flags->base);
  flags->method.add_to(*command, "of the runs");
  command->add_option("--limit", flags->limit, "test rows of each of the run's evaluation tasks (default 32)");
  command->add_option("--data", flags->data, "folder of the tasks' files (default: the run's)");
  add_device_flag(*command, flags->device);
  command->add_flag("--json", flags->json, "one JSON line per kind of gradient, layer and K");
  command->callback([flags] { run_gradient_bias_command(*flags); });
}

}  // namespace evenkeel::apps
