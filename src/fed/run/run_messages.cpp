#include "fed/run/run_messages.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/log.h"
#include "base/plain/number_text.h"
#include "base/system/events.h"
#include "base/system/machine.h"
#include "privacy/signal.h"

namespace evenkeel::fed {
namespace {

void log_beginning(const Server& server, int64_t rounds_done) {
  double rows = 0;
  for (const auto& client : server.clients) rows += client.examples;
  const auto& privacy = server.config->privacy;
  const bool hides_rows = privacy.protects_clients() && !privacy.public_sizes;
  log::info("[train] ", server.config->method.name, " on ", server.model_folder.string(), ": ", server.clients.size(),
            " clients, ", hides_rows ? std::string() : concat(rows, " rows, "), "rounds ", rounds_done + 1, " to ",
            server.config->train.rounds);
}

/// Writes the event "run": the run, and its remaining rounds.
void write_run_event(const Server& server, const fs::path& folder, int64_t rounds_done) {
  auto modes = server.rank_eval_modes();
  std::erase(modes, "");
  events::write("run", {{"run", folder.string()},
                        {"name", server.config->name},
                        {"method", server.config->method.name},
                        {"model", server.model_folder.string()},
                        {"seed", server.config->seed},
                        {"rank_eval_modes", modes},
                        {"clients", server.clients.size()},
                        {"rounds", server.config->train.rounds},
                        {"rounds_done", rounds_done}});
}

/// Warns if parallel clients use more threads than there are processors.
void warn_of_threads(const RunConfig& config) {
  const int64_t threads = config->threads * config->clients.parallel, processors = machine::processors();
  if (config->clients.parallel == 1 || threads <= processors) return;
  log::warning("[train] clients.parallel ", config->clients.parallel, " x threads ", config->threads, " = ", threads,
               " threads, this machine has ", processors,
               " processors: slower than with threads = ", std::max<int64_t>(1, processors / config->clients.parallel));
}

/// Says what the run protects, and warns of what its account does not see.
void log_privacy(const Server& server, const ClientPrivacy& privacy, int64_t rounds_done) {
  log::info("[train] privacy: ", privacy.summary());
  const auto& config = *server.config;
  if (rounds_done == 0 && config.privacy.continues.empty() && !config.lora.init.empty())
    log::warning("[train] lora.init: what the run of that adapter spent on the same clients is not in this account: ",
                 "privacy.continues names a run folder whose account goes on");
  if (const double delta = config.privacy.delta; delta * static_cast<double>(config.clients.count) >= 1)
    log::warning("[train] privacy.delta is ", delta, " for ", config.clients.count,
                 " clients: below 1 / clients it excludes that one of them is shown whole");
}

/// Writes the event "round": a line of rounds.jsonl without its lists.
void write_round_event(const RoundRecord& record, int64_t rounds) {
  events::write("round", {{"round", record.round},
                          {"rounds", rounds},
                          {"loss", record.loss ? OrderedJson(*record.loss) : OrderedJson(nullptr)},
                          {"participants", record.participants},
                          {"lost", record.lost ? record.lost->size() : 0},
                          {"steps", record.steps},
                          {"tokens", record.tokens},
                          {"bytes_up", record.bytes_up},
                          {"bytes_down", record.bytes_down},
                          {"experts_per_token", record.experts_per_token},
                          {"seconds", record.seconds.round},
                          {"tokens_per_second", record.seconds.tokens_per_second}});
}

/// Says what the noise of a round cost, and how much of its sum was signal.
std::string client_privacy_line(int64_t round, const ClientPrivacyRecord& privacy) {
  return concat("[train] round ", round, ": private for clients",
                privacy.simulated ? " (simulated, protects nobody)" : "", ": epsilon ", fixed(privacy.epsilon, 3),
                privacy.budget ? concat(" of ", *privacy.budget) : std::string(), " at delta ", privacy.delta,
                ", changes ", privacy::beside_noise(privacy.signal));
}

/// Says what the private training of a round cost, and how much of it was signal; empty if none was private.
std::string privacy_line(const RoundRecord& record) {
  double epsilon = 0, delta = 0;
  std::optional<double> signal;
  size_t clients = 0;
  bool simulated = false;
  for (const auto& client : record.clients) {
    if (!client.privacy) continue;
    ++clients;
    simulated = simulated || client.privacy->simulated;
    epsilon = std::max(epsilon, client.privacy->epsilon), delta = std::max(delta, client.privacy->delta);
    if (const auto own = client.privacy->signal) signal = std::min(*own, signal.value_or(*own));
  }
  return clients == 0
             ? std::string()
             : concat("[train] round ", record.round, ": private for single rows in ", clients, " clients",
                      simulated ? " (simulated, protects nobody)" : "", ": epsilon up to ", fixed(epsilon, 3),
                      " at delta ", delta,
                      signal ? concat(", gradients at least ", privacy::beside_noise(*signal)) : std::string());
}

void log_round(const RoundRecord& record, int64_t rounds) {
  if (record.withheld)
    log::info("[train] round ", record.round, "/", rounds, ": done");
  else if (!record.loss)
    log::info("[train] round ", record.round, "/", rounds, ": done; no client tells its loss");
  else
    log::info("[train] round ", record.round, "/", rounds, ": loss ", *record.loss, ", ", record.tokens, " tokens, ",
              static_cast<int64_t>(record.seconds.tokens_per_second), " tokens/s");
  if (const auto line = privacy_line(record); !line.empty()) log::info(line);
  if (!record.privacy) return;
  log::info(client_privacy_line(record.round, *record.privacy));
  if (const double bound = record.privacy->signal_bound; record.round == 1 && bound < privacy::kMostlyNoise)
    log::warning("[train] the noise is ", compact(1 / bound), " times the largest possible change: expect no learning");
}

}  // namespace

void report_beginning(const Server& server, const fs::path& folder, const ClientPrivacy* privacy, int64_t rounds_done) {
  write_run_event(server, folder, rounds_done);
  if (rounds_done >= server.config->train.rounds) return;
  log_beginning(server, rounds_done);
  warn_of_threads(server.config);
  if (privacy) log_privacy(server, *privacy, rounds_done);
}

void log_left_out(const Server& server, int64_t rounds) {
  for (const auto& client : server.clients)
    if (client.end_round == rounds)
      log::info("[train] ", server.config->clients.who(client.id), " is left out from round ", rounds + 1,
                " on (until)");
}

void report_round(const RoundRecord& record, int64_t rounds) {
  log_round(record, rounds);
  write_round_event(record, rounds);
}

}  // namespace evenkeel::fed
