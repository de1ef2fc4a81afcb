#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "base/format/limits.h"
#include "base/plain/json.h"
#include "base/plain/number_text.h"
#include "fed/run/pg_alignment.h"
#include "report/table.h"

namespace evenkeel::apps {
namespace {

struct PgAlignmentFlags {
  MethodFlag method;
  std::string run, base, data, device, mode = "kmax";
  int64_t limit = 32;
  bool json = false;
};

std::string number_text(const std::optional<double>& number) { return number ? fixed(*number, 4) : "-"; }

/// Returns a member of the shuffled cosine, or nothing if there is no shuffled cosine.
std::optional<double> shuffled(const train::GradientAlignment& one, double train::ShuffledCosine::*member) {
  return one.shuffled ? std::optional(*one.shuffled.*member) : std::nullopt;
}

void print_json(const train::GradientAlignment& one) {
  const auto number = [](const std::optional<double>& value) { return value ? OrderedJson(*value) : OrderedJson(); };
  std::cout << OrderedJson{{"layer", one.layer},
                           {"idle", one.idle},
                           {"compared", one.compared},
                           {"zero", one.zero},
                           {"cosine", number(one.cosine)},
                           {"shuffled_mean", number(shuffled(one, &train::ShuffledCosine::mean))},
                           {"shuffled_min", number(shuffled(one, &train::ShuffledCosine::least))},
                           {"shuffled_max", number(shuffled(one, &train::ShuffledCosine::most))}}
                   .dump()
            << '\n';
}

void run_pg_alignment_command(const PgAlignmentFlags& flags) {
  limits::check_integer("--limit", flags.limit, 1, limits::kRows);
  const auto mode = parse_enum<fed::AlignMode>("--pg-align-mode", flags.mode);
  report::Table grid{.head = {"layer", "idle", "compared", "zero", "cosine", "shuffled", "least", "most"}};
  for (const auto& one : fed::run_pg_alignment({flags.run, flags.limit, flags.data, flags.device, flags.base}, mode)) {
    if (flags.json) print_json(one);
    grid.add({one.layer, std::to_string(one.idle), std::to_string(one.compared), std::to_string(one.zero),
              number_text(one.cosine), number_text(shuffled(one, &train::ShuffledCosine::mean)),
              number_text(shuffled(one, &train::ShuffledCosine::least)),
              number_text(shuffled(one, &train::ShuffledCosine::most))});
  }
  if (!flags.json)
    std::cout << report::text_of(grid)
              << "compared: experts whose gradients the cosine is of; shuffled, least, most: mean and range "
              << "of " << train::ShuffledCosine::kShuffles
              << " cosines\nwith the pseudo-gradients dealt among these experts\n";
}

}  // namespace

void add_pg_alignment_command(CLI::App& program) {
  auto flags = std::make_shared<PgAlignmentFlags>();
  auto* command = program.add_subcommand("pg-alignment", "cosine of a run's pseudo-gradients with true gradients");
  command->footer(
      "Example: evenkeel pg-alignment --run runs/demo-ub-smoe --limit 64\n\n"
      "Of the experts that no token reaches at the smallest client's budget: how many get a gradient from the same\n"
      "test rows at the full one, how many of these have a zero pseudo-gradient, and the cosine of the two, layer by\n"
      "layer and of all layers together. Beside each: what it is when the pseudo-gradients are dealt among the "
      "experts.");
  command->add_option("--run", flags->run, "run folder of method ub-smoe")->required();
  add_base_flag(*command, flags->base);
  flags->method.add_to(*command, "of the run");
  command->add_option("--limit", flags->limit, "test rows of each of the run's evaluation tasks (default 32)");
  command->add_option("--pg-align-mode", flags->mode,
                      "true gradients with the checkpoint's experts per token (kmax, default), or all experts (dense)");
  command->add_option("--data", flags->data, "folder of the tasks' files (default: the run's)");
  add_device_flag(*command, flags->device);
  command->add_flag("--json", flags->json, "one JSON line per layer");
  command->callback([flags] { run_pg_alignment_command(*flags); });
}

}  // namespace evenkeel::apps
