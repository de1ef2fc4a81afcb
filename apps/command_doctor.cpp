#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/doctor_serve.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"
#include "apps/plan_output.h"
#include "base/format/limits.h"
#include "base/plain/files.h"
#include "base/system/device.h"
#include "base/system/local_ranks.h"
#include "base/system/machine.h"
#include "fed/config/arithmetic.h"
#include "fed/config/config_paths.h"
#include "fed/config/privacy_guarantee.h"
#include "fed/run/computed_speed.h"
#include "fed/run/machine_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/product_speed.h"
#include "fed/run/run_forecast.h"
#include "models/causal_lm.h"
#include "models/cost.h"
#include "nn/dense/matmul_probe.h"
#include "study/running/forecast.h"
#include "study/running/run_study.h"
#include "study/running/study_check.h"

namespace evenkeel::apps {
namespace {

constexpr int64_t kRank = 20;
constexpr int64_t kTokens = 8 * 256;  // a micro-batch of the paper: 8 sequences of 256 tokens

struct DoctorFlags {
  MethodFlag method;
  std::string model, config, client_profile;
  std::vector<std::string> settings;
  bool serve = false;
  int64_t ranks = 1;
};

/// Returns the settings of the config of a run: the choice of a method, and those of --set.
std::vector<std::string> settings_of(const DoctorFlags& flags) {
  auto settings = flags.method.settings();
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  return settings;
}

/// Returns the processor's instruction sets that matter to matrix products.
std::string instruction_sets() {
  std::istringstream flags(machine::processor_field("flags") + " " + machine::processor_field("Features"));
  constexpr std::array<std::string_view, 16> kInteresting = {
      "sse4_2",      "avx",         "f16c",     "fma",      "avx2",  "avx512f", "avx512_vnni", "avx_vnni",
      "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd", "bf16",    "sve",         "i8mm"};
  std::vector<std::string> found;
  for (std::string flag; flags >> flag;)
    if (std::find(kInteresting.begin(), kInteresting.end(), flag) != kInteresting.end()) found.push_back(flag);
  return found.empty() ? "unknown" : join(found, " ");
}

void print_machine() {
  const auto model = machine::processor_field("model name");
  const auto memory = machine::memory();
  std::cout << "processor     " << (model.empty() ? "unknown" : model) << '\n'
            << "cores         " << machine::processors() << ", threads used " << at::get_num_threads() << '\n'
            << "instructions  " << instruction_sets() << '\n'
            << "memory        " << machine::bytes_text(memory.physical) << ", available "
            << machine::bytes_text(memory.available) << " (" << memory.limited_by << ")\n"
            << std::flush;  // before what takes its time
}

/// Prints the GPU that LibTorch can use, if there is one.
void print_gpu() {
  const auto device = find_device("auto", "--device");
  if (device.is_cpu()) {
    std::cout << "gpu           none: " << why_no_gpu() << '\n' << std::flush;
    return;
  }
  const auto gpu = device_identity(device);
  const auto gpu_memory = device_memory(device);
  std::cout << "gpu           " << device_text(device) << ", " << gpu.name << ", architecture " << gpu.architecture
            << ", driver " << gpu.driver << ", CUDA " << gpu.runtime << '\n'
            << "gpu memory    " << machine::bytes_text(gpu_memory.total) << ", free "
            << machine::bytes_text(gpu_memory.free) << '\n'
            << std::flush;
}

void print_products() {
  const auto measured = nn::measure_matmuls();
  std::cout << "\nproducts with a bfloat16 base, GFLOP/s on weights that are not in cache\n"
            << "                          rows |     own     dot    tile  native   widen | chosen\n";
  for (const auto& cell : measured) {
    const auto gflops = [&](nn::MatmulKernel kernel) {
      return fixed(cell.gflops.at(static_cast<size_t>(kernel)), 1, 8);
    };
    std::cout << (cell.context == nn::GemmContext::kExpert ? "an expert" : "a linear ")
              << (cell.direction == nn::Direction::kForward ? ", x W^T       " : ", dY W        ")
              << fixed(static_cast<double>(cell.rows), 0, 7) << " |" << gflops(nn::MatmulKernel::kFp32Exact)
              << gflops(nn::MatmulKernel::kBf16Dot) << gflops(nn::MatmulKernel::kBf16Tile)
              << gflops(nn::MatmulKernel::kBf16Vendor) << gflops(nn::MatmulKernel::kUpcast) << " | "
              << config::name_of(cell.chosen()) << '\n';
  }
  std::cout
      << "own: widened in registers, exact products; dot, tile: activations rounded to bfloat16, two terms and 32 at a "
         "time (0: no such instructions). Bits of these are independent of threads\n"
         "native: the library's bfloat16 product; widen: panels become float32. Another than own is chosen where "
         "it is a tenth faster\n"
         "an expert: one thread each, side by side; a linear: all threads. compute_dtype = \"auto\" measures again "
         "when a run is created, and keeps the table in its config\n";
}

/// Memory of a training process in addition to the frozen base, in bytes.
struct Needs {
  double adapters = 0, activations = 0;
};

/// Estimates the memory. Adapters: twice the server's state, and one client's copy with gradient and two moments, all
/// in float32.
Needs needs_of(const models::CausalLm& model, int64_t top_k) {
  const auto& spec = model.spec();
  const auto parameters = static_cast<double>(models::lora_parameters(model.all_sites(), kRank));
  const models::PassShape pass{.tokens = kTokens, .targets = kTokens, .top_k = top_k, .threads = machine::processors()};
  return {6 * 4 * parameters, static_cast<double>(models::kept_bytes(spec, pass) + models::passing_bytes(spec, pass))};
}

double element_count(const models::CausalLm& model) {
  double count = 0;
  for (const auto& [name, tensor] : model.parameters()) count += static_cast<double>(tensor.numel());
  return count;
}

/// Returns the K of the budgets 1/8 to 1; for a dense model only 0.
std::vector<int64_t> top_ks(const models::ModelSpec& spec) {
  if (spec.num_experts == 0) return {0};
  std::vector<int64_t> all;
  for (const int64_t divisor : {8, 4, 2, 1})
    if (const int64_t k = spec.top_k / divisor; k > 0 && (all.empty() || all.back() != k)) all.push_back(k);
  return all;
}

struct ShapedModel {
  std::string path;  ///< as it was given
  std::filesystem::path folder;
  std::unique_ptr<models::CausalLm> model;
};

ShapedModel open_shape(const std::string& path) {
  const auto folder = models::find_model_folder(path);
  return {path, folder, shape_with_weights(folder)};
}

void print_fit(const ShapedModel& shaped) {
  const auto& [path, folder, model] = shaped;
  struct Precision {
    std::string_view name;
    double element_size;
  };
  const double usable = static_cast<double>(machine::memory().available) / kGiB;
  std::cout << "\n"
            << path << ": training with rank " << kRank << " on every target, 8 x 256 tokens per micro-batch, GiB\n"
            << "   base dtype   K |   base  adapters  activations |  total  fits\n";
  for (const auto& precision :
       {Precision{"checkpoint", 0}, Precision{"int8", 1}, Precision{"bfloat16", 2}, Precision{"float32", 4}})
    for (const int64_t top_k : top_ks(model->spec())) {
      const auto needs = needs_of(*model, top_k);
      const double base = (precision.element_size > 0 ? precision.element_size * element_count(*model)
                                                      : static_cast<double>(models::weight_file_bytes(folder))) /
                          kGiB;
      const double total = base + (needs.adapters + needs.activations) / kGiB;
      std::cout << std::string(13 - precision.name.size(), ' ') << precision.name
                << fixed(static_cast<double>(top_k), 0, 4) << " |" << fixed(base, 2, 7)
                << fixed(needs.adapters / kGiB, 2, 10) << fixed(needs.activations / kGiB, 2, 13) << " |"
                << fixed(total, 2, 7) << (total <= usable ? "  yes" : "  no") << '\n';
    }
  std::cout << "K: experts per token at budgets 1/8 to 1; a base in the checkpoint's dtype, and an int8 one "
               "(model.base_format), are mapped, their pages can be dropped under pressure\n";
}

/// Time of a run of a large model, computed without its weights.
struct ComputedTime {
  double seconds = 0;
  double product_speed = 0;  ///< FLOP/s
};

/// Memory plans, files and time of a run.
struct Foreseen {
  models::MemoryPlan host;
  fed::DiskNeeds disk;
  std::filesystem::path folder;                ///< of the run
  std::optional<models::MemoryPlan> device{};  ///< set if the run computes on a GPU: of all ranks that share it
  std::string device_name{};                   ///< model.device
  bool is_large = false;                       ///< true: the weights are not loaded to measure the time
  std::optional<ComputedTime> computed{};      ///< set for a large model, if its device is here
  std::string guarantee{};                     ///< who is protected against whom
};

/// Returns nothing if the run computes on a GPU and this machine has none.
std::optional<ComputedTime> computed_time(fed::Experiment& experiment, fed::ComputeDtype compute_dtype) {
  const auto& config = experiment.server.config;
  if (names_gpu(config->model.device) && find_device("auto", "model.device").is_cpu()) return std::nullopt;
  auto model = config->model;
  model.compute_dtype = compute_dtype;
  const double product_speed = fed::product_speed(model, config->threads * config->clients.parallel);
  const auto speeds = fed::computed_speeds(fed::run_flops(experiment), product_speed);
  return ComputedTime{fed::foreseen_seconds(fed::counted_work(experiment), speeds), product_speed};
}

/// Returns the experiment of a run without weights. If rows are missing, says how a server is planned, which has none.
fed::Experiment dry_run(const fed::RunConfig& config) {
  try {
    return fed::make_experiment(config, fed::Purpose::kDryRun);
  } catch (const Error& error) {
    if (!config->clients.own_rows()) throw;
    throw error.with_advice("where the rows are at the nodes, --serve plans the federation");
  }
}

/// Estimates the memory of a run, and the time if its model is large, without reading the weights.
Foreseen foreseen(const DoctorFlags& flags) {
  auto asked = fed::ExperimentConfig::load(flags.config, settings_of(flags));
  const auto compute_dtype = asked.model.compute_dtype;
  asked.model.compute_dtype = fed::ComputeDtype::kFloat32;  // nothing is multiplied
  const auto config = fed::settle(asked, fed::machine_choices(asked));
  const bool on_gpu = names_gpu(config->model.device);
  EK_CHECK(on_gpu || flags.ranks == 1, kConfig, "--ranks is ", flags.ranks, ", but the run of ", flags.config,
           " has model.device ", config->model.device, ": --ranks plans the memory of a GPU");
  auto experiment = dry_run(config);
  Foreseen plans{.host = fed::memory_plan(experiment),
                 .disk = fed::disk_needs(experiment),
                 .folder = experiment.server.config->folder()};
  plans.device_name = config->model.device;
  plans.guarantee = fed::privacy_guarantee(*config);
  if (on_gpu)
    plans.device = models::of_ranks(fed::device_memory_plan(experiment), ranks_sharing(plans.device_name, flags.ranks));
  plans.is_large = fed::is_too_large_to_measure(experiment.server.model_folder);
  if (plans.is_large) plans.computed = computed_time(experiment, compute_dtype);
  return plans;
}

/// Returns the memory of the GPU with this name; without a GPU, nothing is free.
machine::Memory gpu_memory(const std::string& name) {
  const auto memory = device_memory(gpu_count() > 0 ? find_device(name, "model.device") : c10::Device(c10::kCPU));
  return {.physical = memory.total,
          .available = memory.free,
          .address_space = std::numeric_limits<int64_t>::max(),
          .limited_by = memory.total > 0 ? "free on the GPU" : "there is no GPU here"};
}

/// Returns true if the run fits into the memory of this machine and of its GPU.
bool fits(const Foreseen& plan) {
  const auto has_room = [](const models::MemoryPlan& needed, const machine::Memory& memory) {
    return models::verdict(needed, memory) != models::MemoryVerdict::kTooLarge;
  };
  return has_room(plan.host, machine::memory()) &&
         (!plan.device || has_room(*plan.device, gpu_memory(plan.device_name)));
}

/// Returns the time of a run in seconds. Trains for some seconds and scores a few rows to measure the speeds.
double measured_seconds(const DoctorFlags& flags) {
  const auto asked = fed::ExperimentConfig::load(flags.config, settings_of(flags));
  const auto run = fed::foresee_run(fed::settle(fed::with_inputs(asked), fed::machine_choices(asked)));
  return fed::foreseen_seconds(run.work, run.speeds);
}

/// Returns the time of a run as text, with its source.
std::string time_of(const DoctorFlags& flags, const Foreseen& plan) {
  if (plan.computed)
    return concat(study::time_text(plan.computed->seconds), ", ", study::basis_of_flops(plan.computed->product_speed));
  if (plan.is_large) return "not computed: there is no GPU here";
  if (!fits(plan)) return "not measured: the run does not fit";
  return concat("about ", study::time_text(measured_seconds(flags)), ", measured here");
}

void print_time_and_disk(const DoctorFlags& flags, const Foreseen& plan) {
  std::cout << "\n" << flags.config << ": time and disk\ntime    " << std::flush;
  std::cout << time_of(flags, plan) << '\n';
  std::cout << "disk    about " << machine::bytes_text(plan.disk.kept) << ", and "
            << machine::bytes_text(plan.disk.passing) << " while it runs, in " << plan.folder.string() << "; free "
            << machine::bytes_text(machine::free_disk(plan.folder)) << '\n'
            << "\n"
            << flags.config << ": privacy\n"
            << plan.guarantee << '\n';
}

bool is_study(const std::string& file) { return !file.empty() && config::Table::load(file).holds_table("study"); }

/// Prints the needs of all runs of a study. Trains for some seconds to measure the speed.
void print_study(const DoctorFlags& flags) {
  EK_CHECK(flags.model.empty() && flags.client_profile.empty(), kConfig, "--config ", flags.config,
           " is a study: it goes with neither --model nor --client-profile");
  const study::StudyCommand command{
      .file = flags.config, .settings = flags.settings, .methods = flags.method.by_name()};
  const auto task = study::plan_study(command);
  study::DryRuns dry_runs(task);
  study::check_study(command, task, dry_runs);
  std::cout << study::forecast_text(command, task, study::foresee(task, dry_runs));
}

/// Returns the config of the run whose training is measured: that of --config, otherwise the default on the built-in
/// tasks.
fed::RunConfig measured_config(const DoctorFlags& flags) {
  auto asked = flags.config.empty() ? fed::ExperimentConfig::read(config::Table::parse("", "defaults"))
                                    : fed::ExperimentConfig::load(flags.config, settings_of(flags));
  if (!flags.model.empty()) asked.model.path = flags.model;
  asked.clients.profiles = {};  // what they do not say yet may be what is measured
  for (auto& client : asked.clients.client) client.profile.reset();
  return fed::settle(fed::with_inputs(asked), fed::machine_choices(asked));
}

/// Checks the file of --client-profile before anything is measured.
void check_profile_file(const DoctorFlags& flags) {
  const fs::path file = flags.client_profile;
  EK_CHECK(fed::is_profile_name(file.stem().string()) && file.extension() == ".toml", kConfig, "--client-profile is ",
           file.string(), ", allowed: NAME.toml, where NAME, of letters, digits, - and _, is the profile's");
  check_replaced_file("--client-profile", file);
  check_apart("--client-profile", file, std::array<fs::path, 1>{flags.config});
}

void print_profile(const DoctorFlags& flags) {
  constexpr double kSeconds = 3;  // of steps per K
  const fs::path file = flags.client_profile;
  auto experiment = fed::make_experiment(measured_config(flags), fed::Purpose::kTrain);
  const auto top_ks = fed::measured_top_ks(experiment);
  const auto profile = fed::measured_profile(experiment, top_ks, kSeconds);
  std::cout << "\ntraining with " << experiment.server.config->method.name << ", rank " << experiment.server.max_rank()
            << ", " << experiment.server.config->train.batch_size << " rows per micro-batch, "
            << experiment.server.config->threads << " threads, tokens/s\n";
  for (size_t i = 0; i < top_ks.size(); ++i)
    std::cout << fixed(static_cast<double>(top_ks[i]), 0, 7) << fixed(profile.tokens_per_second[i], 0, 10) << '\n';
  config::Writer writer("client_profiles");
  writer.nested(file.stem().string(), profile);
  write_file_atomic(file, writer.text(true));
  std::cout << "K, experts per token, and the speed; [client_profiles." << file.stem().string() << "] is in "
            << file.string()
            << ": append it to a config, with the rates of a connection, and name it in clients.profiles\n";
}

/// Checks which flags go together.
void check(const DoctorFlags& flags) {
  EK_CHECK(flags.client_profile.empty() || !(flags.model.empty() && flags.config.empty()), kConfig,
           "--client-profile goes with --config or --model: whose training is to be measured");
  EK_CHECK(flags.settings.empty() || !flags.config.empty(), kConfig, "--set goes with --config");
  EK_CHECK(flags.method.names.empty() || !flags.config.empty(), kConfig, "--method goes with --config");
  if (!flags.method.names.empty() && !is_study(flags.config)) flags.method.check_choice(flags.config, flags.settings);
  EK_CHECK(!flags.serve || (!flags.config.empty() && flags.model.empty() && flags.client_profile.empty()), kConfig,
           "--serve goes with --config alone: it plans the federation of that config");
  limits::check_integer("--ranks", flags.ranks, 1, limits::kThreads);
  EK_CHECK(flags.ranks == 1 || (!flags.config.empty() && !flags.serve && !is_study(flags.config)), kConfig,
           "--ranks goes with the --config of a run, whose memory on a GPU is that of all ranks on it");
  if (!flags.client_profile.empty()) check_profile_file(flags);
  EK_CHECK(!flags.serve || !is_study(flags.config), kConfig, "--serve goes with the config of a run, ", flags.config,
           " is a study");
}

void print_this_machine() {
  print_machine();
  print_gpu();
}

void run_doctor(const DoctorFlags& flags) {
  check(flags);
  if (flags.serve) return plan_served(flags.config, settings_of(flags), print_this_machine);
  if (is_study(flags.config)) return print_study(flags);
  std::optional<ShapedModel> shaped;  // what is read comes first: a mistake is said before anything is measured
  std::optional<Foreseen> plan;
  if (!flags.model.empty()) shaped = open_shape(flags.model);
  if (!flags.config.empty()) plan = foreseen(flags);
  print_this_machine();
  if (!plan) print_products();
  if (shaped) print_fit(*shaped);
  if (plan) print_plan(flags.config + ": memory", plan->host, machine::memory());
  if (plan && plan->device)
    print_plan(flags.config + ": memory of the GPU", *plan->device, gpu_memory(plan->device_name));
  if (plan) print_time_and_disk(flags, *plan);
  if (!flags.client_profile.empty()) print_profile(flags);
}

}  // namespace

void add_doctor_command(CLI::App& program) {
  auto flags = std::make_shared<DoctorFlags>();
  auto* command = program.add_subcommand("doctor", "what this machine can do, and which model fits");
  command->footer(
      "Example: evenkeel doctor --model models/OLMoE-1B-7B-0924\n"
      "         evenkeel doctor --config configs/demo.toml --set train.batch_size=64\n"
      "         evenkeel doctor --config configs/demo.toml --serve\n"
      "         evenkeel doctor --config configs/demo.toml --client-profile this-machine.toml\n\n"
      "Prints cores, instruction sets and memory, and how fast each way to multiply with a bfloat16 base is here; "
      "with --config instead what that run would hold in memory and on disk, and how long it would take. "
      "--client-profile trains for some seconds with each "
      "number of experts per token and writes the speeds as a client profile for simulated time.");
  command->add_option("--model", flags->model, "also: which precision and budget of this model fits into memory");
  command->add_option(
      "--config", flags->config,
      "what a run of this config would hold in memory, part by part, and whether it fits, with its time and "
      "disk; of a study file, those of all its runs");
  command->add_option("--set", flags->settings, "a.b=value, changes one key of --config; as often as needed");
  flags->method.add_to(*command, "with which the run of --config trains, or that arms of its study name");
  command->add_option("--client-profile", flags->client_profile,
                      "measure the training of --config, or of --model on the built-in tasks, and write it as "
                      "[client_profiles.NAME] into NAME.toml");
  command->add_flag("--serve", flags->serve,
                    "plan the federation of --config, as `evenkeel serve` runs it, without the nodes' rows");
  command->add_option(
      "--ranks", flags->ranks,
      "plan the GPU's memory for so many ranks of --config; with model.device cuda:N they share one GPU");
  command->callback([flags] { run_doctor(*flags); });
}

}  // namespace evenkeel::apps
