#include "apps/export_check.h"

#include <ATen/ATen.h>

#include "base/plain/files.h"
#include "base/random/random.h"
#include "lora/peft.h"

namespace evenkeel::apps {
namespace {

constexpr int64_t kIds = 24;

std::vector<int64_t> random_ids(const models::ModelSpec& spec) {
  RandomStream stream(1, "export-check");
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < std::min(kIds, spec.max_positions); ++i)
    ids.push_back(static_cast<int64_t>(stream.below(static_cast<uint64_t>(spec.vocab_size))));
  return ids;
}

at::Tensor logits_of(const models::CausalLm& model, const models::ForwardOptions& options) {
  const auto batch = data::pack_ids(std::vector<std::vector<int64_t>>{random_ids(model.spec())});
  return model.logits(model.hidden(batch, options), options);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a - b).abs().max().item<double>();
}

/// Returns the largest absolute difference of factors and scalings.
double largest_difference(const lora::AdapterState& read, const lora::AdapterState& written) {
  double most = 0;
  for (const auto& [site, factors] : written) {
    const auto found = read.find(site);  // zeros are read as no adapter
    if (found == read.end()) {
      most = std::max({most, factors.a.abs().max().item<double>(), factors.b.abs().max().item<double>()});
      continue;
    }
    const auto& same = found->second;
    most = std::max({most, largest_difference(same.a, factors.a), largest_difference(same.b, factors.b),
                     std::abs(same.scaling - factors.scaling)});
  }
  return most;
}

}  // namespace

std::string read_back(const fs::path& folder, report::ExportFormat format, const WrittenModel& written) {
  if (format == report::ExportFormat::kGguf) return "no GGUF, which this program only writes";
  const nn::RouterOptions gates{.gate_norm = written.router.gate_norm};
  const auto base = models::load_model(written.base_model);
  const auto expected = logits_of(*base, {.adapters = &written.adapters, .router = gates});
  if (format == report::ExportFormat::kMerged) {
    const auto merged = models::load_model(folder);
    return concat("largest difference of logits ", largest_difference(logits_of(*merged, {}), expected),
                  " from base and adapter (", kIds, " random ids)");
  }
  const auto adapters = lora::load_peft_adapter(folder, base->all_sites());
  const auto found = logits_of(*base, {.adapters = &adapters, .router = gates});
  return concat(adapters.size(), " sites, largest difference of factors ",
                largest_difference(adapters, written.adapters), ", of logits ", largest_difference(found, expected),
                " (", kIds, " random ids)");
}

}  // namespace evenkeel::apps
