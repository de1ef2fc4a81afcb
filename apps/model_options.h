/// \file  Defines flags that evaluate, score and generate share: the model, adapter, precision and experts per token,
/// or a run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "fed/run/run_at_budget.h"
#include "models/causal_lm.h"

namespace evenkeel::apps {

/// Values of the flags that name a model.
struct ModelOptions {
  std::string model, adapter;
  std::string dtype = "checkpoint", gate_norm = "olmoe_native";
  int64_t top_k = 0;
  int64_t threads = 0;
  std::string device;

  /// Adds --model, --adapter, --top-k, --gate-norm, --dtype, --threads, --device.
  /// \return the option --model, so that the caller can require it
  CLI::Option* add_to(CLI::App& command);
};

/// A loaded model with its adapter and options. The result of forward() borrows the adapter, so keep this object alive.
struct OpenedModel {
  std::filesystem::path folder;
  std::unique_ptr<models::CausalLm> model;
  lora::AdapterState adapters;
  nn::RouterOptions router;
  nn::Compute compute{};

  models::ForwardOptions forward() const {
    return {.adapters = adapters.empty() ? nullptr : &adapters, .router = router, .compute = compute};
  }
};

/// Returns the folder of the adapter that is applied: --adapter, or the model's folder if an adapter lies in it, which
/// transformers applies. Empty if there is none. \throws kConfig if there are two
std::filesystem::path adapter_of(const ModelOptions& options);

/// Returns the files that a model and its adapter are read from; none when the model is not a folder, which
/// open_model() reports. \throws kConfig as find_model_folder()
std::vector<std::filesystem::path> source_files(const ModelOptions& options);

/// Adds --best, which takes the best round of a run in the place of its last one (fed/run/best_round.h). This function
/// and the next store the value in their second argument, which must outlive the parsing.
void add_best_flag(CLI::App& command, bool& best);

/// Adds --base, which names the folder of a run's base model that was moved. Its files are compared with the run's
/// manifest.
/// \param beside  the flag that it goes with, for the help
void add_base_flag(CLI::App& command, std::string& base, const std::string& beside = "--run");

/// Adds --device. The flag takes any device name; find_device() checks later that the device exists.
void add_device_flag(CLI::App& command, std::string& name);

/// Returns how weights are stored for a command: their type, and the device of --device with its engine. Prepares the
/// process to compute there. \param device  empty: the CPU \throws kConfig when the device does not exist
models::BaseStorage storage_on(const std::string& device, models::BaseDtype dtype = models::BaseDtype::kCheckpoint);

/// Sets the process's number of threads. \param threads  0: all cores
/// \throws kConfig when it is out of range
void use_threads(int64_t threads);

/// Loads the shape of the model in a folder and checks that its weights are there too. \throws kCheckpoint if they are
/// not, and as models::load_shape()
std::unique_ptr<models::CausalLm> shape_with_weights(const std::filesystem::path& folder);

/// Sets the number of threads and loads model and adapter onto the device.
/// \throws kConfig for a flag out of range; kCheckpoint for a folder that is not a valid model or adapter
OpenedModel open_model(const ModelOptions& options);

/// Values of the flags of score and generate, which take a model or a run.
struct SourceOptions : ModelOptions {
  std::string run, base, rank_eval_mode;
  bool best = false;
  std::optional<double> budget;
  CLI::App* command = nullptr;

  /// Adds --run, --base, --best, --budget, --rank-eval-mode and the flags of ModelOptions.
  void add_to(CLI::App& app);
};

/// Checks the flags against each other, without looking at files. \throws kConfig for flags that exclude each other
void check_source(const SourceOptions& options);

/// Returns the files of the run, or those of the model and its adapter.
std::vector<std::filesystem::path> source_files(const SourceOptions& options);

/// The model or the run that SourceOptions names, loaded.
class Source {
 public:
  /// Loads the model or the run. \throws kConfig for flags that exclude each other; as open_model() or RunAtBudget
  explicit Source(const SourceOptions& options);

  const models::CausalLm& model() const { return run_ ? run_->model() : *opened_.model; }
  models::ForwardOptions forward() const { return run_ ? run_->forward() : opened_.forward(); }
  const tokenizer::Tokenizer& tokenizer() const;  ///< loaded on first use
  data::PromptTemplate form() const;              ///< prompt template: the run's, or kPlain for a model
  /// \see Tokenizer::use_chat_template
  void use_chat_template(const std::filesystem::path& file);
  /// \see Tokenizer::use_date
  void use_date(const jinja::Date& date);

 private:
  tokenizer::Tokenizer& tokenizer_of_model() const;

  OpenedModel opened_;
  std::unique_ptr<fed::RunAtBudget> run_;
  mutable std::optional<tokenizer::Tokenizer> tokenizer_;
};

/// Checks that --chat-template and --date have an effect: a chat template renders the prompts.
/// \param template_given, date_given  whether the flags are there \throws kConfig naming the form of the prompts
void check_chat_flags(bool template_given, bool date_given, data::PromptTemplate form);

/// Parses a flag's value as an enumerator. \throws kConfig listing the allowed values
template <config::NamedEnum E>
E parse_enum(std::string_view flag, std::string_view text) {
  std::vector<std::string_view> allowed;
  for (const auto& entry : names(E{})) {
    if (entry.name == text) return entry.value;
    allowed.push_back(entry.name);
  }
  fail(kConfig, flag, " is ", text, ", allowed: ", join(allowed));
}

}  // namespace evenkeel::apps
