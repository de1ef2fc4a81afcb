#include "apps/model_options.h"

#include <ATen/Parallel.h>

#include "base/format/limits.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/threads.h"
#include "fed/config/arithmetic.h"
#include "fed/run/run_folder.h"
#include "fed/store/manifest.h"
#include "lora/peft.h"
#include "nn/moe/scored_routing.h"
#include "train/residence.h"

namespace evenkeel::apps {
namespace {

void check_top_k(const models::ModelSpec& spec, int64_t top_k) {
  if (spec.num_experts == 0)
    EK_CHECK(top_k == 0, kConfig, "--top-k is ", top_k, ", but this model has no experts");
  else
    EK_CHECK(top_k >= 0 && top_k <= spec.num_experts, kConfig, "--top-k is ", top_k, ", allowed: 1 .. ",
             spec.num_experts, " (0: the checkpoint's ", spec.top_k, ")");
}

std::unique_ptr<fed::RunAtBudget> run_at_budget(const SourceOptions& options) {
  limits::check_integer("--threads", options.threads, 0, limits::kThreads);
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", options.dtype);
  const bool dtype_given = options.command && options.command->count("--dtype") > 0;
  return std::make_unique<fed::RunAtBudget>(options.run,
                                            fed::RunAtBudget::Options{.budget = options.budget.value_or(1.0),
                                                                      .base = options.base,
                                                                      .best = options.best,
                                                                      .rank_eval_mode = options.rank_eval_mode,
                                                                      .adjust = [&](fed::ExperimentConfig& config) {
                                                                        if (dtype_given) config.model.dtype = dtype;
                                                                        if (options.threads > 0)
                                                                          config.threads = options.threads;
                                                                        fed::compute_on(config.model, options.device);
                                                                      }});
}

/// Chooses the arithmetic like a run with compute_dtype = "auto" (fed/config/experiment_config.h).
nn::Compute compute_of(const models::BaseStorage& storage) {
  const bool wide = storage.dtype == models::BaseDtype::kFloat32 || storage.dtype == models::BaseDtype::kFloat64;
  const bool rounds = storage.engine == nn::EngineKind::kAten && !wide;
  return {.engine = storage.engine, .inner = rounds ? c10::ScalarType::BFloat16 : c10::ScalarType::Float};
}

}  // namespace

void add_best_flag(CLI::App& command, bool& best) {
  command.add_flag("--best", best, "with --run: the best round, where the run keeps it (evaluate.keep_best)");
}

void add_base_flag(CLI::App& command, std::string& base, const std::string& beside) {
  command.add_option(
      "--base", base,
      concat("with ", beside, ": folder that the run's base model was moved to; its files must be those of the run"));
}

void add_device_flag(CLI::App& command, std::string& name) {
  command.add_option("--device", name, "cpu, cuda, cuda:N or auto (default: model.device of a run, else cpu)")
      ->check([](const std::string& text) {
        return names_compute_device(text) ? std::string()
                                          : concat("\"", shown(text), "\", allowed: cpu, cuda, cuda:0 and so on, auto");
      });
}

models::BaseStorage storage_on(const std::string& device, models::BaseDtype dtype) {
  models::BaseStorage storage(dtype);
  storage.device = find_device(device.empty() ? "cpu" : device, "--device");
  storage.engine = storage.device.is_cpu() ? nn::EngineKind::kKernels : nn::EngineKind::kAten;
  settle_device(storage.device);
  return storage;
}

CLI::Option* ModelOptions::add_to(CLI::App& command) {
  auto* folder = command.add_option("--model", model, "Hugging Face folder, or builtin:tiny-olmoe");
  command.add_option("--adapter", adapter, "PEFT folder of a LoRA adapter");
  command.add_option("--top-k", top_k, "experts per token (default: the checkpoint's)");
  command.add_option("--gate-norm", gate_norm,
                     "weights of the selected experts: olmoe_native, renorm_selected or softmax_all");
  command.add_option("--dtype", dtype,
                     "storage of the weights: checkpoint (as in the file), float32, bfloat16, float64");
  command.add_option("--threads", threads, "processor threads (default: all cores)");
  add_device_flag(command, device);
  return folder;
}

void use_threads(int64_t threads) {
  limits::check_integer("--threads", threads, 0, limits::kThreads);
  if (threads > 0) use_pool_threads(threads);
}

std::filesystem::path adapter_of(const ModelOptions& options) {
  const auto folder = models::resolve_model_path(options.model);
  const auto beside = models::adapter_beside(folder);
  if (!beside || options.adapter.empty()) return beside.value_or(options.adapter);
  EK_CHECK(std::filesystem::equivalent(*beside, options.adapter), kConfig, "--adapter is ", options.adapter,
           ", but an adapter lies beside the weights of ", folder.string(),
           " (adapter_config.json), which transformers applies: move one of the two away");
  return *beside;
}

std::unique_ptr<models::CausalLm> shape_with_weights(const std::filesystem::path& folder) {
  auto shape = models::load_shape(folder);
  EK_CHECK(models::weight_file_bytes(folder) > 0, kCheckpoint, folder.string(),
           " holds neither model.safetensors nor the files of model.safetensors.index.json");
  return shape;
}

OpenedModel open_model(const ModelOptions& options) {
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", options.dtype);
  const auto gate_norm = parse_enum<nn::GateNorm>("--gate-norm", options.gate_norm);
  use_threads(options.threads);
  const auto storage = storage_on(options.device, dtype);
  OpenedModel opened;
  opened.folder = models::find_model_folder(options.model);
  opened.model = models::load_model(opened.folder, storage, models::BesideAdapter::kAppliedByCaller);
  opened.compute = compute_of(storage);
  check_top_k(opened.model->spec(), options.top_k);
  opened.router.top_k = options.top_k;
  nn::check_gate_norm(opened.model->spec().gates.score, gate_norm, "--gate-norm");
  opened.router.gate_norm = gate_norm;
  if (const auto adapter = adapter_of(options); !adapter.empty()) {
    if (options.adapter.empty())
      log::warning("[model] ", opened.folder.string(),
                   ": the adapter of adapter_config.json beside the weights is applied, as transformers does");
    auto copies = StorageCopies::to(storage.device);
    opened.adapters = train::copied(lora::load_peft_adapter(adapter, opened.model->all_sites()), copies);
  }
  return opened;
}

std::vector<std::filesystem::path> source_files(const ModelOptions& options) {
  const auto folder = models::find_model_folder(options.model);
  if (!is_folder(folder)) return {};  // opening the model says so
  auto files = fed::model_files(folder);
  const auto adapter = adapter_of(options);
  for (const auto* name : {"adapter_config.json", "adapter_model.safetensors"})
    if (!adapter.empty()) files.push_back(adapter / name);
  return files;
}

std::vector<std::filesystem::path> source_files(const SourceOptions& options) {
  if (options.run.empty()) return source_files(static_cast<const ModelOptions&>(options));
  auto files = fed::files_of_run(options.run);
  if (const fs::path base = options.base; is_folder(base))
    for (auto& file : fed::model_files(base)) files.push_back(std::move(file));
  return files;
}

void SourceOptions::add_to(CLI::App& app) {
  command = &app;
  app.add_option("--run", run, "run folder: its model and all that its last committed round made, instead of --model");
  add_base_flag(app, base);
  add_best_flag(app, best);
  app.add_option("--budget", budget, "with --run: share of the experts per token, in (0, 1] (default 1)");
  app.add_option("--rank-eval-mode", rank_eval_mode,
                 "with --run of a rank method: a or b, what a budget means (default: the run's first)");
  ModelOptions::add_to(app);
}

void check_source(const SourceOptions& options) {
  const bool run = !options.run.empty();
  EK_CHECK(run == options.model.empty(), kConfig,
           "give either --run or --model; a run's base model that was moved is named by --base FOLDER");
  for (const char* flag : {"--adapter", "--top-k", "--gate-norm"})
    EK_CHECK(!run || !options.command || options.command->count(flag) == 0, kConfig, "--run brings its own: ", flag,
             " goes with --model");
  EK_CHECK(run || !options.best, kConfig, "--best goes with --run");
  EK_CHECK(run || options.base.empty(), kConfig, "--base goes with --run; --model names the model itself");
  EK_CHECK(run || (!options.budget && options.rank_eval_mode.empty()), kConfig,
           "--budget and --rank-eval-mode go with --run; with --model, --top-k says how many experts");
  const double budget = options.budget.value_or(1.0);
  EK_CHECK(budget > 0 && budget <= 1, kConfig, "--budget is ", budget, ", allowed: (0, 1]");
}

Source::Source(const SourceOptions& options) {
  check_source(options);
  if (options.run.empty())
    opened_ = open_model(options);
  else
    run_ = run_at_budget(options);
}

void Source::use_chat_template(const std::filesystem::path& file) {
  if (run_) return run_->use_chat_template(file);
  tokenizer_of_model().use_chat_template(file);
}

void Source::use_date(const jinja::Date& date) {
  if (run_) return run_->use_date(date);
  tokenizer_of_model().use_date(date);
}

const tokenizer::Tokenizer& Source::tokenizer() const { return run_ ? run_->tokenizer() : tokenizer_of_model(); }

/// Loads the tokenizer on first use. \throws kData when the model's embedding has no row for one of its tokens
tokenizer::Tokenizer& Source::tokenizer_of_model() const {
  if (tokenizer_) return *tokenizer_;
  auto loaded = tokenizer::Tokenizer::of_model(opened_.folder);
  loaded.check_fits(opened_.model->spec().vocab_size, opened_.folder);
  return tokenizer_.emplace(std::move(loaded));
}

data::PromptTemplate Source::form() const { return run_ ? run_->config()->data.form : data::PromptTemplate::kPlain; }

void check_chat_flags(bool template_given, bool date_given, data::PromptTemplate form) {
  const bool is_chat = form == data::PromptTemplate::kChat;
  EK_CHECK(!template_given || is_chat, kConfig, "--chat-template goes with --template chat; the prompts are ",
           config::name_of(form));
  EK_CHECK(!date_given || is_chat, kConfig, "--date goes with --template chat; the prompts are ",
           config::name_of(form));
}

}  // namespace evenkeel::apps
