// To add a method: its file, its two functions here, and a row. Programs that bring methods of their own: add_method().
#include <algorithm>
#include <array>

#include "methods/method.h"

namespace evenkeel {

std::unique_ptr<FederatedMethod> make_ub_smoe(const config::Table& table);
void write_ub_smoe(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_a3smoe(const config::Table& table);
void write_a3smoe(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_smoe_llb(const config::Table& table);
void write_smoe_llb(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_hetlora(const config::Table& table);
void write_hetlora(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_flexlora(const config::Table& table);
void write_flexlora(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_flora(const config::Table& table);
void write_flora(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_florist(const config::Table& table);
void write_florist(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_fedex_lora(const config::Table& table);
void write_fedex_lora(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_ffa_lora(const config::Table& table);
void write_ffa_lora(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_fedit(const config::Table& table);
void write_fedit(const config::Table& table, config::Writer& writer);
std::unique_ptr<FederatedMethod> make_fed_sb(const config::Table& table);
void write_fed_sb(const config::Table& table, config::Writer& writer);

namespace {

using enum MethodFamily;
constexpr std::array kTable{
    MethodEntry{.name = "ub-smoe",
                .title = "UB-SMoE",
                .paper = "Tran, Nguyen-Le, Ruffini, Dzaferagic: UB-SMoE, ICML 2026",
                .family = kSparsity,
                .exact = false,
                .needs_experts = true,
                .make = make_ub_smoe,
                .write = write_ub_smoe},
    MethodEntry{.name = "a3smoe",
                .title = "A3SMoE",
                .paper = "Tran et al.: A3SMoE, workshop paper; formulas of FLAME, arXiv:2506.16600",
                .family = kSparsity,
                .exact = false,
                .needs_experts = true,
                .make = make_a3smoe,
                .write = write_a3smoe},
    MethodEntry{.name = "smoe-llb",
                .title = "SMoE-LLB",
                .paper = "FedAvg with the losses of Zoph et al.: ST-MoE, arXiv:2202.08906",
                .family = kSparsity,
                .exact = false,
                .needs_experts = true,
                .make = make_smoe_llb,
                .write = write_smoe_llb},
    MethodEntry{.name = "hetlora",
                .title = "HetLoRA",
                .paper = "Cho et al.: Heterogeneous LoRA, EMNLP 2024, arXiv:2401.06432",
                .family = kRank,
                .exact = false,
                .needs_experts = false,
                .make = make_hetlora,
                .write = write_hetlora},
    MethodEntry{.name = "flexlora",
                .title = "FlexLoRA",
                .paper = "Bai et al.: FlexLoRA, NeurIPS 2024, arXiv:2402.11505",
                .family = kRank,
                .exact = false,
                .needs_experts = false,
                .make = make_flexlora,
                .write = write_flexlora},
    MethodEntry{.name = "flora",
                .title = "FLoRA",
                .paper = "Wang et al.: FLoRA, NeurIPS 2024, arXiv:2409.05976",
                .family = kRank,
                .exact = true,
                .needs_experts = false,
                .make = make_flora,
                .write = write_flora},
    MethodEntry{.name = "florist",
                .title = "FLoRIST",
                .paper = "Ramesh, Dass: FLoRIST, 2025, arXiv:2506.09199",
                .family = kRank,
                .exact = false,
                .needs_experts = false,
                .make = make_florist,
                .write = write_florist},
    MethodEntry{.name = "fedex-lora",
                .title = "FedEx-LoRA",
                .paper = "Singhal, Ponkshe, Vepakomma: FedEx-LoRA, ACL 2025, arXiv:2410.09432",
                .family = kHomogeneous,
                .exact = true,
                .needs_experts = false,
                .make = make_fedex_lora,
                .write = write_fedex_lora},
    MethodEntry{
        .name = "ffa-lora",
        .title = "FFA-LoRA",
        .paper = "Sun et al.: Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024, arXiv:2403.12313",
        .family = kHomogeneous,
        .exact = true,
        .needs_experts = false,
        .make = make_ffa_lora,
        .write = write_ffa_lora},
    MethodEntry{.name = "fedit",
                .title = "FedIT",
                .paper = "Zhang et al.: Towards Building the Federated GPT, ICASSP 2024, arXiv:2305.05644",
                .family = kHomogeneous,
                .exact = false,
                .needs_experts = false,
                .make = make_fedit,
                .write = write_fedit},
    MethodEntry{.name = "fed-sb",
                .title = "Fed-SB",
                .paper = "Singhal et al.: Fed-SB, 2025, arXiv:2502.15436",
                .family = kHomogeneous,
                .exact = true,
                .needs_experts = false,
                .make = make_fed_sb,
                .write = write_fed_sb},
};

std::vector<MethodEntry>& table() {
  static std::vector<MethodEntry> rows(kTable.begin(), kTable.end());
  return rows;
}

}  // namespace

std::span<const MethodEntry> methods() { return table(); }

void add_method(const MethodEntry& entry) {
  const auto taken = [&](const MethodEntry& known) { return known.name == entry.name; };
  EK_CHECK(std::none_of(table().begin(), table().end(), taken), kConfig, "method ", entry.name,
           " is in the table already: choose another name");
  table().push_back(entry);
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
