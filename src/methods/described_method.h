/// \file  Describes a method that is not compiled into the program, such as a class in Python (src/host). The
/// description is plain data. A run folder holds it in manifest.json, so that programs read the run without the
/// method's code. Hooks that the method does not override run as in its base method, which is compiled into the
/// program.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/plain/json.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {

/// A value of a config key of a described method. Its alternative is the key's type.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                 std::vector<std::string>>;

/// A config key of a described method.
struct DescribedOption {
  std::string name, help;
  OptionValue value;  ///< the default
};

/// The config keys of a described method, with their values. The visitors of base/format read and write them.
struct DescribedOptions {
  std::vector<DescribedOption> options{};

  void visit(auto& field) {
    for (auto& option : options) std::visit([&](auto& value) { field(option.name, value, option.help); }, option.value);
  }
  /// Returns the values as a JSON object, by name.
  OrderedJson json() const;
};

/// The description of a method. Not to be copied: `metrics` has views of `metric_names`.
struct MethodDescription {
  std::string name, title, paper, sends;
  std::string file, class_name;  ///< absolute path of its source, and the class in it
  std::string sha256;            ///< SHA-256 of the source
  std::string base;              ///< name of the method whose hooks run where this method overrides none
  std::string base_options;      ///< TOML of the base method's table
  std::set<std::string> hooks;   ///< names of the overridden hooks of methods/method.h
  std::vector<DescribedOption> options;
  std::vector<std::string> metric_names;
  std::vector<MetricRange> metrics;  ///< its own, then those of the base method
  MethodFamily family = MethodFamily::kHomogeneous;
  nn::GateNorm gate_norm = nn::GateNorm::kCheckpoint;
  bool exact = false, needs_experts = false, needs_individuals = false, changes_base = false;
  double seconds = 300;  ///< time limit of a hook
  Json json;             ///< the whole description, as the manifest of a run holds it

  bool overrides(const std::string& hook) const { return hooks.contains(hook); }
};

/// Identifies a method in Python. The machines of one run compare these values. Empty for a compiled method.
struct MethodDigests {
  std::string name{};
  std::string source{};       ///< SHA-256 of the source
  std::string description{};  ///< SHA-256 of the description without the path and the hash of the source

  bool operator==(const MethodDigests&) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("name", name);
    field("source", source);
    field("description", description);
  }
};
MethodDigests digests_of(const MethodEntry& entry);

/// Reads a description. \throws the error kind of `view`, naming the place of a value that is missing or wrong; kConfig
/// for an unknown base method or a bad value in `base_options`
std::shared_ptr<const MethodDescription> read_description(const JsonView& view);

/// Creates the method with the values of its keys.
using MakeDescribed = std::function<std::unique_ptr<FederatedMethod>(
    const std::shared_ptr<const MethodDescription>& description, const DescribedOptions& options)>;

/// Returns the registry entry of a described method. \param make  empty: its overridden hooks cannot be called
MethodEntry described_entry(const std::shared_ptr<const MethodDescription>& description, MakeDescribed make = {});

/// Returns the flag by which another process finds a class, `--method FILE:CLASS`. Empty if its file does not exist, as
/// for a class of a notebook.
std::vector<std::string> method_flag(const std::string& file, const std::string& class_name);

/// Adds the method of a run's manifest to the registry, unless the registry has this description, or the code of a
/// method with this name.
/// \throws as read_description()
void know_described(const JsonView& view);

/// Descriptions as a record holds them (base/format/record.h). from_json() also calls know_described() for each.
struct MethodDescriptions {
  std::vector<Json> list{};
};
OrderedJson to_json(const MethodDescriptions& descriptions);
void from_json(const JsonView& view, MethodDescriptions& descriptions);

/// A method whose hooks call the base method. An overridden hook cannot be called, because its code is not known.
/// Functions for rounds in which the server gets sums alone are not forwarded: such rounds refuse described methods.
/// \throws kConfig when an overridden hook is called; the message says how to name the method's file
class DescribedMethod : public FederatedMethod {
 public:
  explicit DescribedMethod(std::shared_ptr<const MethodDescription> description);

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override;
  at::Tensor extra_loss(const StepView& step) const override;
  at::Tensor penalty(const StepView& step) const override;
  void edit_gradients(const StepView& step) const override;
  void edit_parameters(const StepView& step) const override;
  lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                       const ClientView& view) const override;
  void check_upload(const lora::Payload& upload, const ClientProfile& client) const override;
  ServerState initialize(const ServerView& server) const override;
  int64_t rank_of(const ServerState& state, const ClientProfile& client) const override;
  lora::Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const override;
  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override;
  TensorMap diagnostics(const ServerState& state) const override;
  lora::AdapterState pseudo_gradients(const ServerState& state) const override;

 protected:
  const MethodDescription& description() const { return *description_; }
  const FederatedMethod& base() const { return *base_; }
  bool overrides(const char* hook) const { return description_->overrides(hook); }

 private:
  /// Returns the base method. \throws kConfig when `hook` is overridden
  const FederatedMethod& base_for(const char* hook) const;

  std::shared_ptr<const MethodDescription> description_;
  std::unique_ptr<FederatedMethod> base_;
};

}  // namespace evenkeel::methods
