#include "flower/federation/served_experiment.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "fed/round/adapter_readers.h"
#include "fed/round/starting_adapter.h"
#include "fed/run/make_experiment.h"
#include "fed/run/state_evaluation.h"
#include "flower/federation/request_check.h"
#include "models/cost.h"

namespace evenkeel::flower {
namespace {

/// Checks that the method works with rows on nodes. \throws kConfig if it needs the rows of all clients in one place
void require_rows_apart(const fed::Server& server) {
  const auto sample = agreed_sample(server);
  EK_CHECK(!sample || sample->from != methods::SampleFrom::kPooled, kConfig, "method ", server.config->method.name,
           " would begin with the rows of all clients, which nobody holds together here: say method.",
           server.config->method.name, ".init = \"federated\", which asks each client for its own");
}

/// Checks that a run that compares its rounds by scores has them. \throws kConfig
void require_comparable_rounds(bool evaluate, const fed::RunConfig& config) {
  const auto& here = config.tasks_here();
  EK_CHECK(evaluate || !config->seeks_best() || here.empty(), kConfig,
           "train.stop and evaluate.keep_best compare the rounds by their scores: they do not go with --no-evaluation, "
           "which leaves out ",
           join(here));
}

/// Checks that privacy of clients is not simulated. \throws kConfig
void require_real_privacy(const fed::PrivacySection& privacy) {
  if (!privacy.protects_clients()) return;
  const auto check = [](bool real, const char* key, const auto& value, const char* allowed) {
    EK_CHECK(real, kConfig, "privacy.", key, " is ", value, ", allowed where the clients are nodes: ", allowed);
  };
  check(privacy.sampling != fed::PrivacySampling::kPoisson, "sampling", "\"poisson\"",
        "all or fixed, because logs show who takes part");
  check(privacy.noise == fed::PrivacyNoise::kSecret, "noise", "\"seeded\"", "secret");
  check(privacy.noise_cohort == 0, "noise_cohort", privacy.noise_cohort, "0");
}

/// Leaves out the tasks that this server would score, if it scores none.
void leave_out_tasks_here(bool evaluate, fed::Server& server) {
  if (evaluate) return;
  const auto& here = server.config.tasks_here();
  std::erase_if(server.tasks,
                [&](const auto& task) { return std::find(here.begin(), here.end(), task) != here.end(); });
}

}  // namespace

fed::Experiment served_experiment(const fed::RunConfig& config, bool evaluate) {
  EK_CHECK(config->privacy.unit != fed::PrivacyUnit::kExample, kConfig,
           "[privacy] is simulated and protects no node where unit is \"example\": in a federation, the operator of a "
           "node switches it on (node --privacy-epsilon)");
  require_real_privacy(config->privacy);
  fed::check_nodes(config->secure_aggregation);
  fed::check_rows_of_nodes(*config);
  EK_CHECK(!config->secure_aggregation.hides_uploads() || config->clients.profiles.numbers().empty(), kConfig,
           "secure_aggregation.mode is \"masks\", which does not go with machines of simulated time (client_profiles) "
           "where the clients are nodes");
  auto e = fed::make_experiment(config, evaluate ? fed::Purpose::kPrepare : fed::Purpose::kServe);
  fed::check_start(e.server);
  fed::warn_of_readers(e.server, "[serve] adapter/ of this run");
  require_rows_apart(e.server);
  require_comparable_rounds(evaluate, e.server.config);
  leave_out_tasks_here(evaluate, e.server);
  if (evaluate) fed::check_evaluation(e);
  return e;
}

void leave_out_what_nobody_brings(fed::Server& server) {
  if (!server.clients_with_test_rows->empty()) return;
  const auto none = fed::client_tasks(server);
  if (none.empty()) return;
  log::warning("[serve] ", join(none),
               ": not scored, no node has test rows that it gives scores of (node --test and --min-test-rows, or "
               "held_out)");
  std::erase_if(server.tasks,
                [&](const auto& task) { return std::find(none.begin(), none.end(), task) != none.end(); });
}

int64_t most_upload(const fed::Server& server) {
  double numbers = 2 * static_cast<double>(models::lora_parameters(server.sites, server.max_rank()));
  if (server.config->method.entry().asks_gradients)
    for (const auto& [name, site] : server.sites)
      numbers += static_cast<double>(std::max<int64_t>(1, site.experts) * site.in) * static_cast<double>(site.out);
  return static_cast<int64_t>(std::min(sizeof(float) * numbers + 0x1p30, 0x1p62));
}

}  // namespace evenkeel::flower
