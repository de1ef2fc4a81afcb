/// \file  A federated run whose clients are nodes: waits until all have joined, plays the rounds, and leaves what any
/// other run leaves in its folder, beside a folder of its own:
///
///   federation/members.json   flower/federation/roster.h
///   federation/nodes.json     flower/server/coordinator.h
///   federation/sessions.jsonl    a line per client and round: what was sent, how long it took, who was lost and why
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/system/interrupt.h"
#include "fed/store/run_request.h"
#include "flower/federation/fleet_fabric.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {

/// What a served run looks like from outside, at any moment.
struct FleetStatus {
  std::string run, method;
  int64_t round = 0, rounds = 0;     ///< done, of
  int64_t clients = 0, members = 0;  ///< wanted, joined
  std::vector<Member> roster;
  std::vector<SessionReport> last;  ///< of each client that was talked to
};
/// As Prometheus reads it.
std::string prometheus_text(const FleetStatus& status);

struct ServeOptions {
  RunRequest request{};
  bool resume = false;
  std::optional<int64_t> from_round{};  ///< of a run that goes on: this round instead of the last committed one
  double patience_s = 300;              ///< for which a node that is away is waited for, where clients.deadline is 0
  bool evaluate = true;                 ///< without: the server needs the model's shapes and tokenizer alone
  std::vector<std::string> names{};     ///< of allowed keys: who is named as a client in the config is that client
  StopRequest stop{};
  std::function<void(const FleetStatus& status)> on_status{};  ///< whenever something changed
};

struct ServedRun {
  std::filesystem::path folder;
  std::vector<TaskScore> scores;
};

/// \param grid_in  makes the grid, given the folder that its state lives in
/// Rows to be scored, encoder, the adapter to start from and what else is here are read before that, the weights when
/// all clients have joined. With `resume` and `train.rounds=N` among the settings the run has N rounds from now on.
/// \return where the run is, and the scores of its last round. \throws Interrupted at a safe place; `--resume` then
/// goes on
ServedRun serve(const ServeOptions& options,
                const std::function<std::unique_ptr<Grid>(const std::filesystem::path& folder)>& grid_in);

}  // namespace evenkeel
