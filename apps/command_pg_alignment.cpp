#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/json.h"
#include "fed/pg_alignment.h"
#include "report/text_grid.h"

namespace evenkeel {
namespace {

struct PgAlignmentFlags {
  std::string run, data, mode = "kmax";
  int64_t limit = 32;
  bool json = false;
};

std::string cosine_text(const std::optional<double>& cosine) { return cosine ? fixed(*cosine, 4) : "-"; }

void print_json(const PgAlignment& one) {
  OrderedJson json = {{"layer", one.layer}, {"idle", one.idle}, {"compared", one.compared}, {"zero", one.zero}};
  json["cosine"] = one.cosine ? OrderedJson(*one.cosine) : OrderedJson();
  std::cout << json.dump() << '\n';
}

void run_pg_alignment_command(const PgAlignmentFlags& flags) {
  EK_CHECK(flags.limit >= 1, kConfig, "--limit is ", flags.limit, ", allowed: 1 or more");
  const auto mode = parse_enum<AlignMode>("--pg-align-mode", flags.mode);
  TextGrid grid({"layer", "idle", "compared", "zero", "cosine"});
  for (const auto& one : run_pg_alignment(flags.run, flags.limit, mode, flags.data)) {
    if (flags.json) print_json(one);
    grid.add({one.layer, std::to_string(one.idle), std::to_string(one.compared), std::to_string(one.zero),
              cosine_text(one.cosine)});
  }
  if (!flags.json) std::cout << grid.text();
}

}  // namespace

void add_pg_alignment_command(CLI::App& program) {
  auto flags = std::make_shared<PgAlignmentFlags>();
  auto* command = program.add_subcommand("pg-alignment", "cosine of a run's pseudo-gradients with true gradients");
  command->description(
      "Example: evenkeel pg-alignment --run runs/demo-ub-smoe --limit 64\n\n"
      "Of the experts that no token reaches at the smallest client's budget: how many get a gradient from the same\n"
      "test rows at the full one, how many of these have a zero pseudo-gradient, and the cosine of the two, layer by\n"
      "layer and of all layers together.");
  command->add_option("--run", flags->run, "run folder of method ub-smoe")->required();
  command->add_option("--limit", flags->limit, "test rows of each of the run's evaluation tasks (default 32)");
  command->add_option("--pg-align-mode", flags->mode,
                      "true gradients with the checkpoint's experts per token (kmax, default), or all experts (dense)");
  command->add_option("--data", flags->data, "folder of the tasks' files (default: the run's)");
  command->add_flag("--json", flags->json, "one JSON line per layer");
  command->callback([flags] { run_pg_alignment_command(*flags); });
}

}  // namespace evenkeel
