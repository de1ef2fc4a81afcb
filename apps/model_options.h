/// \file  What evaluate, score and generate share: which model, with which adapter, in which precision, with how many
/// experts; or which run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/format/config_table.h"
#include "fed/run/run_at_budget.h"
#include "models/causal_lm.h"

namespace evenkeel {

struct ModelOptions {
  std::string model, adapter;
  std::string dtype = "checkpoint", gate_norm = "olmoe_native";
  int64_t top_k = 0;
  int64_t threads = 0;
  std::string device;

  /// Adds --model, --adapter, --top-k, --gate-norm, --dtype, --threads, --device. \return --model, for the
  /// caller to require or not.
  CLI::Option* add_to(CLI::App& command);
};

/// A model with what its forward calls need. The adapter is borrowed by forward(): keep this object alive.
struct OpenedModel {
  std::filesystem::path folder;
  std::unique_ptr<CausalLm> model;
  AdapterState adapters;
  RouterOptions router;
  Compute compute{};

  ForwardOptions forward() const {
    return {.adapters = adapters.empty() ? nullptr : &adapters, .router = router, .compute = compute};
  }
};

/// Adds --device, which takes a device's name; whether it is there, find_device() says.
void add_device_flag(CLI::App& command, std::string& name);

/// Sets the number of threads that --threads asks for; 0: all cores. \throws kConfig when it is out of range.
void use_threads(int64_t threads);

/// Sets the number of threads, loads model and adapter onto the device. \throws kConfig for a flag out of range,
/// kCheckpoint for a bad folder.
OpenedModel open_model(const ModelOptions& options);

/// What score and generate work with: a model as ModelOptions say, or a run.
struct SourceOptions : ModelOptions {
  std::string run, reading;
  std::optional<double> budget;
  CLI::App* command = nullptr;

  /// Adds --run, --budget, --reading, and what ModelOptions has.
  void add_to(CLI::App& app);
};

class Source {
 public:
  /// \throws kConfig for flags that do not go together, and as open_model() or RunAtBudget.
  explicit Source(const SourceOptions& options);

  const CausalLm& model() const { return run_ ? run_->model() : *opened_.model; }
  ForwardOptions forward() const { return run_ ? run_->forward() : opened_.forward(); }
  const Tokenizer& tokenizer() const;  ///< read when it is first asked for
  PromptTemplate form() const;         ///< the run's; of a model kPlain
  /// \see Tokenizer::use_chat_template
  void use_chat_template(const std::filesystem::path& file);
  /// \see Tokenizer::use_date
  void use_date(const jinja::Date& date);

 private:
  OpenedModel opened_;
  std::unique_ptr<RunAtBudget> run_;
  mutable std::optional<Tokenizer> tokenizer_;
};

/// A flag's value as an enumerator. \throws kConfig listing what is allowed.
template <config::NamedEnum E>
E parse_enum(std::string_view flag, std::string_view text) {
  std::vector<std::string_view> allowed;
  for (const auto& entry : names(E{})) {
    if (entry.name == text) return entry.value;
    allowed.push_back(entry.name);
  }
  fail(kConfig, flag, " is ", text, ", allowed: ", join(allowed));
}

}  // namespace evenkeel
