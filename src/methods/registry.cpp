// To add a method: its file, its two functions here, and a row.
#include <array>

#include "methods/method.h"

namespace evenkeel {

std::unique_ptr<FederatedMethod> make_fedit(const config::Table& table);
void write_fedit(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_ub_smoe(const config::Table& table);
void write_ub_smoe(const config::Table& table, config::Writer& writer);

std::span<const MethodEntry> methods() {
  static const std::array table{
      MethodEntry{.name = "ub-smoe",
                  .title = "UB-SMoE",
                  .paper = "Tran, Nguyen-Le, Ruffini, Dzaferagic: UB-SMoE, ICML 2026",
                  .exact = false,
                  .needs_experts = true,
                  .make = make_ub_smoe,
                  .write = write_ub_smoe},
      MethodEntry{.name = "fedit",
                  .title = "FedIT",
                  .paper = "Zhang et al.: Towards Building the Federated GPT, ICASSP 2024, arXiv:2305.05644",
                  .exact = false,
                  .needs_experts = false,
                  .make = make_fedit,
                  .write = write_fedit},
  };
  return table;
}

const MethodEntry& find_method(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& entry : methods()) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  fail(kConfig, "method.name is \"", name, "\", known: ", join(known));
}

}  // namespace evenkeel
