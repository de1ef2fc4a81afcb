/// \file  Defines the configuration of a federated run, section by section. Defaults follow the UB-SMoE paper. The
/// texts of visit() explain the keys.
///
/// Files are parsed strictly (base/format/config_table.h): an unknown key is an error. `[method]` is parsed separately,
/// because it holds `name` and one table per method. All tables present are checked, and the selected one is used.
/// `[cluster]` is parsed by cluster/options.h and is not part of a run's config, because it does not affect results.
/// An ExperimentConfig is what was asked for: values may be "auto", empty or relative to other keys. A run computes
/// with a RunConfig (fed/config/run_config.h), in which all values are settled. Reading does not inspect the machine.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/config_values.h"
#include "data/partition.h"
#include "data/prompt.h"
#include "fed/config/early_stopping.h"
#include "fed/config/machine_profiles.h"
#include "fed/config/node_rules.h"
#include "fed/config/per_client.h"
#include "fed/config/privacy_section.h"
#include "fed/config/secure_aggregation.h"
#include "methods/aggregation_options.h"
#include "methods/method_registry.h"
#include "models/causal_lm.h"
#include "nn/compute/engine_choice.h"
#include "scoring/bert_score.h"
#include "scoring/task_evaluation.h"
#include "train/local_training.h"
#include "train/rate_schedule.h"

namespace evenkeel::fed {

/// Selects the kernels of matrix products with base weights that are stored in 16 bits or int8
/// (nn/compute/matmul_table.h). Weights in float32 or float64 are computed in their own dtype. With the engine kAten,
/// the value is the dtype of matrix products inside blocks (nn/compute/compute.h).
enum class ComputeDtype {
  kAuto,  ///< engine kKernels: measured when the run is created; kAten: bfloat16 on a GPU, else float32
  /// This program's kernels. With large weights they round activations to bfloat16 and use dot-product instructions.
  kBFloat16,
  /// This program's kernels in float32. As with kBFloat16, results do not depend on the thread count.
  kFloat32,
  kMeasured,  ///< the kernels that [model.products] lists; not available with kAten
};
constexpr auto names(ComputeDtype) {
  return std::array{config::EnumName<ComputeDtype>{"auto", ComputeDtype::kAuto},
                    config::EnumName<ComputeDtype>{"bfloat16", ComputeDtype::kBFloat16},
                    config::EnumName<ComputeDtype>{"float32", ComputeDtype::kFloat32},
                    config::EnumName<ComputeDtype>{"measured", ComputeDtype::kMeasured}};
}
using nn::EngineChoice;

/// Selects whether the layers of a step of training or generation are recorded as CUDA graphs
/// (nn/engine/pass_graphs.h). Their batches are padded, so results may differ in rounding.
enum class GraphsChoice { kAuto, kOn, kOff };
constexpr auto names(GraphsChoice) {
  return std::array{config::EnumName<GraphsChoice>{"auto", GraphsChoice::kAuto},
                    config::EnumName<GraphsChoice>{"on", GraphsChoice::kOn},
                    config::EnumName<GraphsChoice>{"off", GraphsChoice::kOff}};
}

/// Values of this machine for keys that a config leaves open (fed/config/arithmetic.h measures them).
struct MachineChoices {
  int64_t threads = 1;
  nn::MatmulTable products;                                 ///< the fastest kernels, if they were measured
  std::string device = "cpu";                               ///< value of device = "auto": "cpu" or "cuda"
  std::string no_graphs = "the device is not a GPU";        ///< why graphs cannot be recorded; empty: they can
  std::string no_cuda_kernels = "the device is not a GPU";  ///< why CUDA kernels cannot compute; empty: they can
};

/// `[model.products]`: the kernel of each matrix product with a base weight, by number of rows. Each list has
/// MatmulTable::kRows.size() names of kernels (nn/compute/matmul_table.h). Either all four lists are given or none.
struct ProductsSection {
  std::vector<std::string> expert_forward, expert_backward, linear_forward, linear_backward;
  void visit(auto& field) {
    field("expert_forward", expert_forward,
          "kernel of x W^T in experts for 1, 4, 8, 16, 32, 64, 128, 256 and more rows, each own, widen, native, dot or "
          "tile; empty: chosen by compute_dtype");
    field("expert_backward", expert_backward, "kernel of dY W in experts, as expert_forward");
    field("linear_forward", linear_forward, "kernel of x W^T in all other weights, as expert_forward");
    field("linear_backward", linear_backward, "kernel of dY W in all other weights, as expert_forward");
  }
  void resolve(const config::Table& table) const;
  /// Returns true if the lists are given.
  bool given() const { return !expert_forward.empty(); }
  /// Makes the section that lists the kernels of `table`.
  static ProductsSection of(const nn::MatmulTable& table);
  /// Returns the MatmulTable with the kernels of the lists.
  nn::MatmulTable table() const;
};

/// `[model]`: the base model, its device, dtypes and kernels.
struct ModelSection {
  std::string path = "builtin:tiny-olmoe";
  models::BaseDtype dtype = models::BaseDtype::kCheckpoint;
  ComputeDtype compute_dtype = ComputeDtype::kAuto;
  models::BaseFormat base_format = models::BaseFormat::kStored;
  std::string base_cache;
  std::string device = "cpu";
  EngineChoice engine = EngineChoice::kAuto;
  GraphsChoice graphs = GraphsChoice::kAuto;
  std::string cuda_kernels = "none";
  ProductsSection products;
  void visit(auto& field) {
    field("path", path,
          "base model: folder in Hugging Face format with tokenizer.json, hub name (org/name) in the local cache, or "
          "builtin:tiny-olmoe (dense: builtin:tiny-olmo)");
    field("dtype", dtype,
          "storage of the frozen base weights: checkpoint (as in the file), float32, bfloat16 or float64");
    field("compute_dtype", compute_dtype,
          "arithmetic with bfloat16 or int8 weights: float32, bfloat16, measured (kernels of model.products), or auto "
          "(measured once on this machine; on a GPU bfloat16; results may differ in rounding)");
    field("base_format", base_format,
          "stored (as dtype says), or int8 with a scale per row for experts, attention, dense blocks and head, half "
          "the memory of bfloat16");
    field(
        "base_cache", base_cache,
        "folder of the int8 file, written once per checkpoint; empty: .evenkeel-cache beside the run folder or study");
    field("device", device,
          "device of the base weights and of training, one client at a time: cpu, cuda (each rank its own GPU), "
          "cuda:N, or auto (a GPU if there is one)");
    field("engine", engine,
          "operators: kernels (this program's, CPU only), aten (LibTorch's, any device), or auto (aten on a GPU, "
          "otherwise kernels)");
    field("graphs", graphs,
          "record the layers of a step of training or generation and replay them, on a GPU: on, off, or auto (on where "
          "it is possible); results may differ in rounding");
    field("cuda_kernels", cuda_kernels,
          "kernels of this program that compute on a GPU instead of LibTorch's operators: none, all, some of swiglu, "
          "norm, "
          "rows and routing with commas between them, or auto (all where they can be compiled); results may differ in "
          "rounding");
    field("products", products, "");
  }
  void resolve(const config::Table& table) const;
  /// Returns true if LibTorch's operators compute. REQUIRES a device that is not "auto"
  bool uses_operators() const;
  /// Checks that device and engine support the other keys.
  /// \param place_of  returns " (file, line)" of a key, for error messages
  /// \throws kConfig
  void check_engine(const std::function<std::string(std::string_view key)>& place_of) const;
  /// Replaces "auto" in device, engine, compute_dtype (settle_products()), graphs and cuda_kernels. \throws kConfig as
  /// check_engine(), and when graphs or CUDA kernels are asked for and are not possible
  void settle(const MachineChoices& machine);
  /// Replaces graphs "auto". \param why_not  MachineChoices::no_graphs \throws kConfig when "on" is not possible
  void settle_graphs(const std::string& why_not);
  /// Replaces cuda_kernels "auto". \param why_not  MachineChoices::no_cuda_kernels \throws kConfig when kernels are
  /// asked for and are not possible
  void settle_cuda_kernels(const std::string& why_not);
  /// Returns the kernel of each matrix product; float32 kernels if compute_dtype is "auto".
  nn::MatmulTable product_table() const;
  /// Returns the engine with its kernels or dtype. A compute_dtype of "auto" counts as float32.
  nn::Compute compute() const;
  /// Replaces compute_dtype "auto" by the value that fits the measured kernels `chosen`, or by the default of the
  /// engine kAten. Does nothing if compute_dtype is not "auto".
  void settle_products(const nn::MatmulTable& chosen);
  /// Returns the options for loading the weights onto the CPU.
  /// \param beside  the run folder; the default int8 cache is beside it, or beside the study that it is in
  models::BaseStorage storage(const std::filesystem::path& beside) const;
  /// Returns true if the config asks for a base in float32 or float64, for which there is only one kernel.
  bool stores_wide() const { return dtype == models::BaseDtype::kFloat32 || dtype == models::BaseDtype::kFloat64; }
};

/// `[lora]`: rank, scale and sites of the adapters.
struct LoraSection : lora::LoraScale {
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  bool router_lora = true;
  std::string init;
  void visit(auto& field) {
    lora::LoraScale::visit(field);
    field("targets", targets, "last parts of the names of the adapted modules; for routers see router_lora");
    field("router_lora", router_lora, "also adapt the routers of models that have them");
    field("init", init,
          "folder of a PEFT adapter that training starts from; empty: new factors; $EVENKEEL_DATA/ at the start is "
          "replaced");
  }
  void resolve(const config::Table& table) const;
  /// Returns the sites of `targets` and, if router_lora is true, the model's routers.
  /// \throws kConfig naming a target that the model lacks or that is a router
  lora::Sites sites(const models::CausalLm& model) const;
};

/// `[data]`: the training rows and how they become examples.
struct DataSection : data::TokenizeOptions {
  config::Names task = "builtin";
  std::string path, chat_template, date;
  int64_t limit = 0;
  data::PartitionConfig partition;
  data::TelequadConfig telequad;
  data::FilesConfig files;
  void visit(auto& field) {
    field("task", task,
          "task family of the training rows, or a list of families: commonsense, telequad, builtin, builtin_large, "
          "builtin_changed, files (your own)");
    field("path", path,
          "folder of the family's data files, or of such folders; $EVENKEEL_DATA/ at the start is replaced; "
          "hf://datasets/org/name: in the local hub cache; unused by builtin* and files");
    data::TokenizeOptions::visit(field);
    field("chat_template", chat_template,
          "template = \"chat\" only: template file to use in place of the model's, copied into the run folder; empty: "
          "the model's own");
    field("date", date,
          "template = \"chat\" only: value of strftime_now, YYYY-MM-DD or YYYY-MM-DDThh:mm:ss; today: the day on which "
          "the run is created; empty: strftime_now is not defined");
    field("limit", limit,
          "number of training rows, per client where clients have data of their own; 0: all (builtin, builtin_large: "
          "2400)");
    field("partition", partition, "");
    field("telequad", telequad, "");
    field("files", files, "");
  }
  void resolve(const config::Table& table) const;
  /// Returns how to tokenize rows for a model with the end-of-sequence token `eos_id`.
  data::TokenizeOptions tokenize_options(int64_t eos_id) const;

 private:
  void check_family(const std::string& name, const config::Table& table) const;
};

/// `[[clients.client]]`: values of one client. Omitted keys take the value that [clients] or [data.files] gives to all.
struct ClientSection {
  std::string name, key;
  std::vector<std::string> data, test;
  std::optional<double> held_out, budget;
  std::optional<int64_t> rank;
  std::optional<std::string> profile;
  std::optional<int64_t> until;
  void visit(auto& field) {
    field("name", name, "name in logs, records and reports; empty: the client's number");
    field("key", key,
          "nodes only: SHA-256 fingerprint of the key of the client's node, \"SHA256:...\" as evenkeel keygen prints "
          "it; no node with another key may be this client");
    field("data", data, "files or globs of the client's own training rows, with format and score as in data.files");
    field("test", test, "files or globs of the client's own test rows; empty: the share held_out of its training rows");
    field("held_out", held_out,
          "share of the client's training rows kept for testing, in [0, 1); overrides data.files.held_out");
    field("budget", budget, "beta_c, in (0, 1]; overrides clients.budgets");
    field("rank", rank, "r_c, 1 .. lora.rank; overrides clients.ranks");
    field("profile", profile, "name of a machine in [client_profiles]; overrides clients.profiles");
    field("until", until,
          "last round that the client takes part in, 0 or more; in later rounds it is neither drawn nor asked for "
          "scores; absent: it takes part to the end");
  }
  void resolve(const config::Table& table) const;
};

/// Placeholder for the training files of a client whose rows are at its node.
inline constexpr std::string_view kRowsElsewhere = "(rows of its own)";

/// `[clients]`: the clients, their budgets, ranks and machines, and the rules of a round.
struct ClientsSection {
  int64_t count = 8;
  double participation = 1.0;
  int64_t parallel = 1;
  PerClient<double> budgets;
  PerClient<int64_t> ranks;
  PerClient<std::string> profiles;
  double deadline = 0;
  int64_t quorum = 1;
  int64_t most_examples = 0;
  double update_ratio = 10;
  double update_norm = 0;
  bool bound_simulated = false;
  int64_t start = 0;
  Placement assign = Placement::kNamed;
  OnChange on_change = OnChange::kRefuse;
  std::vector<ClientSection> client;  ///< one entry per client, or empty
  void visit(auto& field) {
    field("count", count, "number of clients, 1 or more");
    field("participation", participation,
          "share of the clients drawn per round, in (0, 1]; at least one client is drawn");
    field(
        "parallel", parallel,
        "number of clients that train at the same time, each with `threads` threads; results do not depend on it, but "
        "with threads = 0 each has fewer");
    field("budgets", budgets,
          "beta_c in (0, 1], one per client, or a pattern { values, shares, deal }; K_c = floor(K_max beta_c); empty: "
          "1/8, 1/4, 1/2, 1 in turn");
    field("ranks", ranks,
          "r_c in 1 .. lora.rank, one per client, or a pattern { values, shares, deal }; empty: lora.rank, or "
          "lora.rank * (0.2 + 0.8 beta_c) with a rank method");
    field("profiles", profiles,
          "names in [client_profiles], one per client, or a pattern { values, shares, deal }, for simulated time; "
          "empty: time is not simulated");
    field("deadline", deadline,
          "seconds after which a round closes without the clients that have not replied: simulated with profiles, real "
          "with nodes (evenkeel serve); 0: none");
    field("quorum", quorum, "number of replies that a round waits for even after its deadline, 1 or more");
    field("most_examples", most_examples,
          "nodes only: largest number of training rows that a client may report when it joins; 0: no limit");
    field("update_ratio", update_ratio,
          "nodes, and with bound_simulated all clients: a client is left out of a round if its update's norm exceeds "
          "this factor times the larger of the round's median norm and its steps times the median norm per step; with "
          "fewer than three updates, times what its optimiser can move; 1 or more, or 0: no limit");
    field("update_norm", update_norm,
          "clients as for update_ratio: largest Frobenius norm of an update over all factors, beyond which the client "
          "is left out of the round; 0: no limit");
    field("bound_simulated", bound_simulated,
          "also apply update_ratio and update_norm to the simulated clients of evenkeel train");
    field("start", start,
          "nodes only: number of clients with which the run begins; the others join later and may be drawn from the "
          "round after they have joined; 0: all");
    field("assign", assign,
          "nodes only: which node becomes a client that has a name and no key: named (the one with this name in the "
          "list of keys; others are refused) or arrival (else the next node, with a warning and a record)");
    field("on_change", on_change,
          "nodes only: a node that returns with other rows, another base or another tokenizer than it joined with is "
          "refused (refuse), or goes on with a warning and a record (record)");
    field("client", client, "");
  }
  void resolve(const config::Table& table);
  /// Returns true if clients have training rows of their own. Otherwise the rows of `[data]` are divided among them.
  bool own_rows() const;
  /// Returns the number of clients that are drawn for the first round if no more than `start` have joined.
  int64_t drawn_at_first() const;
  /// Returns the smallest number of clients that are drawn for a round: the first one, or one after clients have left.
  /// Clients that are lost still count.
  int64_t fewest_drawn() const;
  /// Returns true if clients' own rows are stored at the nodes of a federation, so that this process does not know the
  /// files.
  bool rows_elsewhere() const;
  /// Returns "client 3" or, if the client has a name, "client 3 (hospital)".
  std::string who(int64_t id) const;
  /// Returns the client's name, if it has one.
  std::optional<std::string> name(int64_t id) const;
  /// Returns the fingerprint of the key that the client must have; empty: none is given.
  std::string key(int64_t id) const;
  /// Returns the number of rounds after which the client is left out; nullopt: it takes part to the end.
  std::optional<int64_t> until(int64_t id) const;
};

/// `[train]`: rounds, local training and the learning-rate schedule.
struct TrainSection : train::LocalTraining {
  int64_t rounds = 10;
  lora::TransportDtype transport_dtype = lora::TransportDtype::kFloat32;
  train::RateSchedule schedule;
  StopSection stop;
  void visit(auto& field) {
    field("rounds", rounds, "number of communication rounds, 1 or more");
    field("transport_dtype", transport_dtype,
          "dtype of the factors sent between server and clients: float32 or bfloat16");
    train::LocalTraining::visit(field);
    field("schedule", schedule, "");
    field("stop", stop, "");
  }
  void resolve(const config::Table& table) const;
  /// Returns the learning rate eta of a round. \param round  0 = the first
  double learning_rate(int64_t round) const { return optimizer.lr * schedule.at(round, rounds); }
};

/// `[evaluate.bert_score]`: the encoder that compares free-text answers with their references.
struct BertScoreSection : scoring::BertScoreOptions {
  std::string encoder;
  void visit(auto& field) {
    field("encoder", encoder, "folder of a BERT or RoBERTa checkpoint for BERTScore; empty: no BERTScore");
    scoring::BertScoreOptions::visit(field);
  }
  void resolve(const config::Table& table) const;
};

/// `[evaluate]`: what is scored, at which budgets and when.
struct EvaluateSection : scoring::EvaluationOptions {
  std::vector<std::string> tasks;
  std::vector<double> budgets = {0.125, 0.25, 0.5, 1.0};
  std::vector<std::string> rank_eval_modes = {"a", "b"};
  int64_t limit = 0;
  int64_t every = 0;
  bool before = false;
  bool as_exported = true;
  bool per_client = false;
  bool items = false;
  bool keep_best = false;
  BestSection best;
  BertScoreSection bert_score;
  void visit(auto& field) {
    field("tasks", tasks, "tasks or task families (evenkeel list tasks); empty: all tasks of data.task");
    field("budgets", budgets, "budgets at which the global adapter is evaluated, each in (0, 1]");
    field("rank_eval_modes", rank_eval_modes,
          "evaluations of rank methods: a (adapter truncated to r_c, all experts), b (all ranks, K_c experts)");
    field("limit", limit, "number of test rows per task, of each client that has rows of its own; 0: all");
    scoring::EvaluationOptions::visit(field);
    field("every", every, "also evaluate after every n-th round; 0: after the last round only");
    field("before", before, "also evaluate before the first round");
    field("as_exported", as_exported,
          "also score the exported adapter with the routing of other programs, if an export cannot contain the run's "
          "routing");
    field("per_client", per_client,
          "also score at each client's budget, on its own test rows and on those of all clients; limit applies to each "
          "of them");
    field("items", items, "also write the scores of each row into the run folder (items/), for intervals of a study");
    field("keep_best", keep_best,
          "also keep the adapter of the best round in best/ of the run folder, for --best of generate, score, "
          "evaluate and export; needs evaluations before the last round");
    field("best", best, "");
    field("bert_score", bert_score, "");
  }
  void resolve(const config::Table& table) const;
};

/// `[output]`: the run folder.
struct OutputSection {
  std::string dir;
  void visit(auto& field) { field("dir", dir, "run folder, new or empty; empty text: runs/<name>"); }
};

/// `[report]`: outputs in addition to the records and the page.
struct ReportSection {
  bool tensorboard = false;
  void visit(auto& field) {
    field("tensorboard", tensorboard, "also write TensorBoard event files into the run folder (docs/tracking.md)");
  }
};

/// `[method]`: the selected method, and the tables of all methods in the file.
struct MethodSection {
  std::string name = "ub-smoe";
  nn::GateNorm gate_norm = nn::GateNorm::kRenormSelected;
  std::vector<std::pair<const methods::MethodEntry*, config::Table>> tables;

  /// Reads and checks `[method]` and all its tables. \throws kConfig naming the key and the allowed values
  static MethodSection read(const config::Table& table);
  const methods::MethodEntry& entry() const { return methods::find_method(name); }
  /// Makes the selected method with the keys of its table. \throws kConfig
  std::unique_ptr<methods::FederatedMethod> make() const;
  void visit(config::Writer& writer);
  void visit(config::ValueLister& lister);
};

/// The whole config of a run.
struct ExperimentConfig {
  std::string name = "run";
  int64_t seed = 42;
  int64_t threads = 0;
  ModelSection model;
  LoraSection lora;
  DataSection data;
  ClientsSection clients;
  ClientProfilesSection client_profiles;
  TrainSection train;
  methods::AggregationOptions aggregation;
  PrivacySection privacy;
  SecureAggregationSection secure_aggregation;
  EvaluateSection evaluate;
  OutputSection output;
  ReportSection report;
  MethodSection method;  // parsed and written separately, see the top of the file

  void visit(auto& field) {
    field("name", name, "name of the run and of its folder");
    field("seed", seed, "seed of all random draws, 0 or more");
    field("threads", threads,
          "CPU threads per training client; 0: all cores, divided among clients that train at the same time; "
          "results may differ in rounding where LibTorch computes products");
    field("model", model, "");
    field("lora", lora, "");
    field("data", data, "");
    field("clients", clients, "");
    field("client_profiles", client_profiles, "");
    field("train", train, "");
    field("aggregation", aggregation, "");
    field("privacy", privacy, "");
    field("secure_aggregation", secure_aggregation, "");
    field("evaluate", evaluate, "");
    field("output", output, "");
    field("report", report, "");
  }

  /// Reads all sections and checks all values that can be checked without opening files. \throws kConfig
  static ExperimentConfig read(const config::Table& table);
  /// Loads a file and applies settings to it.
  /// \param settings  "a.b=value", as --set takes them
  /// \throws kIo, kConfig
  static ExperimentConfig load(const std::filesystem::path& file, std::span<const std::string> settings = {});

  void resolve(const config::Table& table);  ///< checks rules that concern several sections
  /// Checks that clients do not train in parallel on a GPU, whose memory fits one client at a time.
  /// \param place  position of clients.parallel in the file, for messages; may be empty
  /// \throws kConfig
  void check_parallel(const std::string& place) const;
  /// Returns how to read the rows of a task, with the files of clients that have their own.
  /// \param limit  number of rows; 0: all
  data::RowOptions rows(int64_t limit = 0) const;
  /// Returns true if the state after `round` rounds is evaluated. \param round  0: before the first one
  bool evaluates_after(int64_t round) const;
  /// Returns true if what a client trains in a round depends on the number of rounds.
  bool training_depends_on_rounds() const {
    return train.schedule.depends_on_rounds() || privacy.noise_depends_on_rounds();
  }
  /// Returns true if the run looks for its best round: for evaluate.keep_best or train.stop.
  bool seeks_best() const { return evaluate.keep_best || train.stop.patience > 0; }
  /// Returns the config as TOML with every key. \param comments  true: the help of a key follows it
  std::string text(bool comments = false) const;
  /// Returns the values of the keys of text(), by full key.
  config::Values values() const;

  /// Returns output.dir, or runs/<name> if it is empty.
  std::filesystem::path folder() const;

 private:
  void check_tasks(const config::Table& table) const;
  void check_best(const config::Table& table) const;
  void check_ranks(const config::Table& table) const;
  void check_machines(const config::Table& table) const;
  void check_own_rows(const config::Table& table) const;
  void check_privacy(const config::Table& table) const;             // in check_privacy.cpp
  void check_secure_aggregation(const config::Table& table) const;  // in check_secure_aggregation.cpp
  void expand_home_in_paths();                                      // in config_paths.cpp
};

}  // namespace evenkeel::fed
