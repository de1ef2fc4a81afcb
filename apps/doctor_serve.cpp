#include "apps/doctor_serve.h"

#include <iostream>
#include <map>
#include <tuple>

#include "apps/plan_output.h"
#include "base/system/machine.h"
#include "fed/config/arithmetic.h"
#include "fed/config/client_rows.h"
#include "fed/config/config_paths.h"
#include "fed/config/privacy_guarantee.h"
#include "fed/run/computed_speed.h"
#include "fed/run/federation_plan.h"
#include "fed/run/run_forecast.h"
#include "models/causal_lm.h"
#include "study/running/forecast.h"

namespace evenkeel::apps {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string mib(int64_t bytes) { return fixed(static_cast<double>(bytes) / kMiB, 2, 9); }

/// Prints a line per kind of client, because a federation may have thousands.
void print_traffic(const std::string& config, const fed::FederationPlan& plan) {
  std::map<std::tuple<double, int64_t, int64_t>, std::pair<int64_t, fed::ClientTraffic>> kinds;
  for (const auto& client : plan.clients) {
    auto& [count, traffic] = kinds[{client.budget, client.top_k, client.rank}];
    ++count, traffic = client;
  }
  std::cout << "\n"
            << config << ": traffic of training, at most, MiB in a round\n"
            << "  clients  budget   K   rank |     down       up\n";
  for (const auto& [key, kind] : kinds) {
    const auto& [count, client] = kind;
    std::cout << fixed(static_cast<double>(count), 0, 9) << fixed(client.budget, 3, 8)
              << fixed(static_cast<double>(client.top_k), 0, 4) << fixed(static_cast<double>(client.rank), 0, 7) << " |"
              << mib(client.down) << mib(client.up) << "  each\n";
  }
  std::cout
      << fixed(static_cast<double>(plan.participants), 0, 9) << " in a round        |" << mib(plan.down) << mib(plan.up)
      << "  in all, at the server\n"
      << "a client that joins or comes back receives all that the method has merged so far; scores, and the final "
         "adapter, take their own traffic\n";
}

/// Returns the time in which the server scores its own rows, as text.
std::string scoring_time(const fed::ExperimentConfig& asked, const fed::FederationPlan& plan) {
  if (plan.scored_rows == 0) return "the server scores no rows itself";
  const auto rows = concat("the server scores ", fixed(plan.scored_rows, 0), " rows itself, in all its evaluations: ");
  if (fed::is_too_large_to_measure(models::find_model_folder(asked.model.path)))
    return rows + "not measured, the model is large";
  if (models::verdict(plan.server, machine::memory()) == models::MemoryVerdict::kTooLarge)
    return rows + "not measured, it does not fit";
  const auto config = fed::settle(fed::with_inputs(asked), fed::machine_choices(asked));
  const auto seconds = fed::measured_scoring_seconds(config, plan.scored_rows);
  return seconds ? concat(rows, "about ", study::time_text(*seconds), ", measured here")
                 : rows + "not measured, the method begins with the nodes' rows";
}

void print_time_and_disk(const std::string& file, const fed::ExperimentConfig& asked, const fed::FederationPlan& plan) {
  const auto folder = asked.folder();
  std::cout << "\n" << file << ": time and disk\ntime    " << std::flush << scoring_time(asked, plan) << '\n';
  std::cout
      << "        training: a round takes as long as its slowest node\n"
      << "disk    server: about " << machine::bytes_text(plan.disk.kept) << ", and "
      << machine::bytes_text(plan.disk.passing) << " while it runs, in " << folder.string() << "; free "
      << machine::bytes_text(machine::free_disk(folder)) << '\n'
      << "        node: " << machine::bytes_text(plan.node_disk) << " for the final adapter, besides its base\n"
      << "not known here: number and length of the rows and test rows, speed and network of the nodes. With rows, "
         "doctor --config without --serve gives a node's memory and time\n";
}

}  // namespace

void plan_served(const std::string& file, const std::vector<std::string>& settings,
                 const std::function<void()>& describe_machine) {
  const auto asked = fed::without_rows(fed::ExperimentConfig::load(file, settings));
  auto unmeasured = asked;
  unmeasured.model.compute_dtype = fed::ComputeDtype::kFloat32;  // nothing is multiplied
  const auto plan = fed::plan_federation(fed::settle(unmeasured, fed::machine_choices(unmeasured)));
  describe_machine();
  print_plan(file + ": memory of the server", plan.server, machine::memory());
  std::cout << "with --no-evaluation it needs no base, only config.json and tokenizer.json\n";
  print_parts(concat(file, ": memory of the largest node, at most, with rows of ", plan.longest_row, " tokens,"),
              plan.node);
  print_traffic(file, plan);
  print_time_and_disk(file, asked, plan);
  std::cout << "\n" << file << ": privacy\n" << fed::privacy_guarantee(asked) << '\n';
}

}  // namespace evenkeel::apps
