/// Computes the statistics of a study for given numbers, for comparison with scipy and statsmodels.
/// A server of jobs (jobs.h).
/// JOB: {"values": [n], "items": [n][tasks][items] or [], "p_values": [m], "probabilities": [..], "freedoms": [..],
///       "beta": [[a, b, x], ..], "effects": [[effect, pairs], ..], "resamples": count, "key": seed, "out": file}
/// OUT: float64 tensors: mean, t (2), p, holm (m), detectable, resampled (resamples), bca (2), normal_quantiles,
///      normal_cdfs, t_quantiles (freedoms x probabilities), t_cdfs, betas, powers; a statistic that does not exist is
///      empty.
#include <ATen/ATen.h>

#include "base/format/safetensors.h"
#include "base/plain/json.h"
#include "comparison/distributions.h"
#include "comparison/statistics.h"
#include "jobs.h"

namespace evenkeel::comparison {
namespace {

using Numbers = std::vector<double>;

at::Tensor tensor_of(const Numbers& numbers) { return at::tensor(numbers, at::kDouble); }
at::Tensor tensor_of(const std::optional<double>& number) { return tensor_of(number ? Numbers{*number} : Numbers{}); }
at::Tensor tensor_of(const std::optional<Interval>& interval) {
  return tensor_of(interval ? Numbers{interval->low, interval->high} : Numbers{});
}

Numbers numbers(const Json& job, const char* key) { return job.at(key).get<Numbers>(); }

void add_quantiles(const Json& job, TensorMap& out) {
  Numbers quantiles, cdfs, of_t, cdfs_of_t;
  for (const double p : numbers(job, "probabilities")) {
    quantiles.push_back(normal_quantile(p));
    cdfs.push_back(normal_cdf(10 * p - 5));
    for (const double freedom : numbers(job, "freedoms")) {
      of_t.push_back(t_quantile(p, freedom));
      cdfs_of_t.push_back(t_cdf(20 * p - 10, freedom));
    }
  }
  out["normal_quantiles"] = tensor_of(quantiles);
  out["normal_cdfs"] = tensor_of(cdfs);
  out["t_quantiles"] = tensor_of(of_t);
  out["t_cdfs"] = tensor_of(cdfs_of_t);
}

void add_functions(const Json& job, TensorMap& out) {
  Numbers betas, powers;
  for (const auto& beta : job.at("beta")) betas.push_back(incomplete_beta(beta[0], beta[1], beta[2]));
  for (const auto& test : job.at("effects")) powers.push_back(paired_t_power(test[0], test[1], 0.05));
  out["betas"] = tensor_of(betas);
  out["powers"] = tensor_of(powers);
}

void run(const fs::path& file) {
  const Json job = load_json(file);
  const auto values = numbers(job, "values");
  const auto items = job.at("items").get<std::vector<ItemsOfSeed>>();
  const auto resampled = bootstrap_means(values, items, {job.at("key"), "test"}, job.at("resamples"));
  TensorMap out{{"mean", tensor_of(mean_of(values))},
                {"t", tensor_of(t_interval(values))},
                {"p", tensor_of(t_test(values))},
                {"holm", tensor_of(holm(numbers(job, "p_values")))},
                {"detectable", tensor_of(detectable_difference(values))},
                {"resampled", tensor_of(resampled)},
                {"bca", tensor_of(bca_interval(values, resampled))}};
  add_quantiles(job, out);
  add_functions(job, out);
  save_safetensors(job.at("out").get<std::string>(), out);
}

}  // namespace
}  // namespace evenkeel::comparison

int main() { return evenkeel::serve_jobs(evenkeel::comparison::run); }
