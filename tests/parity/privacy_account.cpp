/// Computes epsilons of given releases, for comparison with dp-accounting. A server of jobs (jobs.h).
/// JOB: {"accounts": [[[q, z, times], ..], ..], "delta": delta, "single": [[q, z], ..], "out": file}
/// OUT: float64 tensors: per account enforced, all (fractional orders too), loss (privacy loss distribution); and
///      divergences (single x orders), at fractional orders too.
#include <ATen/ATen.h>

#include "base/format/safetensors.h"
#include "base/plain/json.h"
#include "jobs.h"
#include "privacy/accountant.h"
#include "privacy/loss_distribution.h"

namespace evenkeel::privacy {
namespace {

std::vector<Releases> releases_of(const Json& account) {
  std::vector<Releases> releases;
  for (const auto& some : account) releases.push_back({{.noise = some[1], .sampling = some[0]}, some[2]});
  return releases;
}

double epsilon(const std::vector<Releases>& releases, Orders orders, double delta) {
  Accountant accountant(orders);
  accountant.add(releases);
  return accountant.spent(delta).epsilon;
}

void run(const fs::path& file) {
  const Json job = load_json(file);
  const double delta = job.at("delta");
  std::vector<double> enforced, all, loss, divergences;
  for (const auto& account : job.at("accounts")) {
    const auto releases = releases_of(account);
    enforced.push_back(epsilon(releases, Orders::kEnforced, delta));
    all.push_back(epsilon(releases, Orders::kAll, delta));
    loss.push_back(loss_distribution_epsilon(releases, delta).value());
  }
  for (const auto& event : job.at("single"))
    for (const double order : renyi_orders())
      divergences.push_back(renyi_divergence({.noise = event[1], .sampling = event[0]}, order, Orders::kAll));
  save_safetensors(job.at("out").get<std::string>(), {{"enforced", at::tensor(enforced, at::kDouble)},
                                                      {"all", at::tensor(all, at::kDouble)},
                                                      {"loss", at::tensor(loss, at::kDouble)},
                                                      {"divergences", at::tensor(divergences, at::kDouble)}});
}

}  // namespace
}  // namespace evenkeel::privacy

int main() { return evenkeel::serve_jobs(evenkeel::privacy::run); }
