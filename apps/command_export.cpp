#include <ATen/ATen.h>

#include <iostream>
#include <memory>
#include <set>
#include <string>

#include "apps/commands.h"
#include "apps/export_check.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"
#include "base/plain/atomic_folder.h"
#include "base/plain/files.h"
#include "base/plain/hub_name.h"
#include "base/plain/json.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "fed/run/best_round.h"
#include "fed/run/make_experiment.h"
#include "fed/run/stored_config.h"
#include "lora/gguf_adapter.h"
#include "lora/modules.h"
#include "lora/peft.h"
#include "models/checkpoint.h"
#include "report/model_card.h"
#include "tokenizer/chat_template.h"

namespace evenkeel::apps {
namespace {

struct ExportFlags {
  std::string run, base, model, adapter, format = "peft", out, dtype = "checkpoint", experts = "original", base_model;
  bool check = false, no_pad = false, best = false;
};

/// An adapter, and the shape and options of its model.
struct Trained {
  lora::AdapterState adapters;
  std::unique_ptr<models::CausalLm> shape;  ///< of the base model, without weights
  fs::path base;                            ///< its folder
  nn::RouterOptions router;                 ///< of the run's evaluations
};

Trained read_adapter(const ExportFlags& flags) {
  const auto base = models::find_model_folder(flags.model);
  auto shape = models::load_shape(base);
  auto adapters = lora::load_peft_adapter(flags.adapter, shape->all_sites());
  return {.adapters = std::move(adapters), .shape = std::move(shape), .base = base, .router = {}};
}

/// Reads the adapter of a run's last committed round, or of its best one.
Trained read_run(const ExportFlags& flags) {
  const fs::path folder = flags.run;
  const auto config = fed::config_with_base(folder, flags.base);
  const auto last = flags.best ? fed::read_best_state(folder) : fed::Checkpoint(folder / "checkpoint").read();
  EK_CHECK(last.commit.round > 0, kIo, folder.string(), ": no round is committed yet, there is nothing to export");
  const auto& state = last.snapshot.state;
  auto adapters = methods::whole_adapter(state);
  EK_CHECK(!adapters.empty(), kCheckpoint, last.folder.string(),
           ": the state holds no adapter, there is nothing to export");
  const auto base = models::find_model_folder(config->model.path);
  auto shape = models::load_shape(base);
  const auto server = fed::make_server(config, *shape);
  fed::check_state(state, server.sites,
                   concat((last.folder / "state.safetensors").string(), " on the base model ", base.string()));
  return {.adapters = std::move(adapters),
          .shape = std::move(shape),
          .base = base,
          .router = server.setup_of(state, server.evaluator(state, {})).router};
}

/// Returns the sum of a weight and its update, which is added in float32. \throws kNumeric as stored_as()
at::Tensor merged_weight(const std::string& name, const at::Tensor& base, const lora::LoraFactors& factors,
                         at::ScalarType type) {
  auto sum = lora::delta_weight(factors).to(at::kFloat);
  EK_CHECK(sum.sizes() == base.sizes(), kShape, "merge: the update is ", sum.sizes(), ", the weight ", base.sizes());
  return models::stored_as(type, sum.add_(base), name);
}

/// Sets the family's key for whether gate weights sum to one. A dense model has no gates.
void set_gates(const models::CausalLm& model, const nn::RouterOptions& router, OrderedJson& config) {
  if (model.spec().num_experts == 0) return;
  const auto& gates = model.spec().gates;
  const bool sum_to_one = nn::renormalises(router.gate_norm, gates.renormalise);
  EK_CHECK(sum_to_one == gates.renormalise || !gates.key.empty(), kConfig, "the run weighed its experts ",
           config::name_of(router.gate_norm), ", which no config.json of family ", model.spec().family,
           " says: export an adapter");
  if (sum_to_one != gates.renormalise) config[gates.key] = sum_to_one;
}

/// Returns the config.json of a merged checkpoint. It names no files that are not written: the folder's own code, and
/// layers for multi-token prediction.
std::string merged_config(const models::CausalLm& model, const nn::RouterOptions& router) {
  auto config = OrderedJson::parse(model.config_json());
  set_gates(model, router, config);
  for (const auto* key : {"_name_or_path", "auto_map"}) config.erase(key);
  for (const auto* key : {"num_nextn_predict_layers", "num_mtp_layers"})
    if (config.contains(key)) config[key] = 0;
  return config.dump(2) + "\n";
}

/// Removes the keys in which transformers stores where a tokenizer came from, usually a local folder, and its own code,
/// which is not copied.
std::string without_paths(const std::string& tokenizer_config, const std::string& place) {
  auto config = parse_json<OrderedJson>(tokenizer_config, place);
  if (!config.is_object()) return tokenizer_config;
  size_t erased = 0;
  for (const auto* key :
       {"name_or_path", "tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file", "auto_map"})
    erased += config.erase(key);
  return erased == 0 ? tokenizer_config : config.dump(2) + "\n";
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const auto* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "generation_config.json", "vocab.json", "merges.txt"}) {
    if (!path_exists(from / name)) continue;
    const auto text = read_file(from / name);
    const bool is_config = std::string_view(name) == "tokenizer_config.json";
    write_file_atomic(to / name, is_config ? without_paths(text, (from / name).string()) : text);
  }
  for (const auto& file : tokenizer::chat_template_files(from)) {
    const auto copy = to / fs::relative(file, from);
    make_folders(copy.parent_path());
    write_file_atomic(copy, read_file(file));
  }
}

void save_merged(const fs::path& out, const ExportFlags& flags, const Trained& trained) {
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", flags.dtype);
  const auto model = models::load_model(trained.base);
  auto weights = model->parameters();
  for (const auto& [module, factors] : lora::factors_by_module(trained.adapters, model->all_sites())) {
    const auto name = module + ".weight";
    auto& weight = weights.at(name);
    weight = merged_weight(name, weight, factors, models::scalar_type(dtype).value_or(weight.scalar_type()));
  }
  models::write_checkpoint(
      out, merged_config(*model, trained.router), std::move(weights), dtype, model->spec().float32_tensors,
      models::kShardBytes,
      models::fused_tensors(model->all_sites(), parse_enum<models::ExpertLayout>("--experts", flags.experts)));
  copy_tokenizer(trained.base, out);
}

void save_gguf(const fs::path& out, const Trained& trained) {
  const auto& model = trained.shape->spec();
  const auto& architecture = model.gguf.architecture;
  EK_CHECK(!architecture.empty(), kConfig, "llama.cpp has no architecture for family ", model.family);
  lora::save_gguf_adapter(out / "adapter.gguf", trained.adapters, trained.shape->all_sites(), architecture);
}

bool is_for_peft(report::ExportFormat format) {
  return format == report::ExportFormat::kPeft || format == report::ExportFormat::kPeftFused;
}

void save(const fs::path& out, report::ExportFormat format, const ExportFlags& flags, const Trained& trained) {
  if (format == report::ExportFormat::kMerged) return save_merged(out, flags, trained);
  if (format == report::ExportFormat::kGguf) return save_gguf(out, trained);
  const auto& shape = *trained.shape;
  const auto standard = lora::standard_layout(shape.spec().peft);
  lora::save_peft_adapter(out, trained.adapters, shape.all_sites(),
                          {.base_model = flags.base_model,
                           .layout = format == report::ExportFormat::kPeft ? standard : lora::PeftLayout::kFused,
                           .whole_layers = !flags.no_pad});
}

/// Writes the run's own chat template, if it has one, so that programs prompt the adapter as in training. It is used
/// for all conversations, so the model's templates of other names are not exported.
void write_chat_template(const fs::path& out, const ExportFlags& flags) {
  if (flags.run.empty()) return;
  const auto own = fed::run_config(flags.run)->data.chat_template;
  if (own.empty()) return;
  write_file_atomic(out / "chat_template.jinja", read_file(own));
  for (const auto& file : tokenizer::chat_template_files(out))
    if (file != out / "chat_template.jinja") fs::remove(file);
}

/// Reads the records of a run up to the exported round.
records::RunRecords records_of(const ExportFlags& flags) {
  auto run = records::load_run(flags.run);
  const auto best = flags.best ? fed::read_best(flags.run) : std::nullopt;
  if (!best) return run;
  std::erase_if(run.rounds, [&](const fed::RoundRecord& round) { return round.round > best->round; });
  std::erase_if(run.evaluations, [&](const fed::EvaluationRecord& score) { return score.round > best->round; });
  return run;
}

std::vector<std::string> targets_of(const lora::AdapterState& adapters) {
  std::set<std::string> names;
  for (const auto& [site, factors] : adapters) names.insert(site.substr(site.rfind('.') + 1));
  return {names.begin(), names.end()};
}

/// Writes the model card. Without a run, or if the run's records are damaged, the export has no card.
void write_card(const fs::path& out, report::ExportFormat format, const ExportFlags& flags, const Trained& trained,
                const report::ServingFacts& facts) {
  if (flags.run.empty()) return;
  const auto info = lora::peft_info(flags.base_model, trained.adapters);
  try {
    const auto card = report::model_card(records_of(flags), fed::run_config(flags.run),
                                         {.format = format,
                                          .facts = facts,
                                          .scale = {.alpha = info.alpha, .rank = info.rank},
                                          .targets = targets_of(trained.adapters),
                                          .base_model = flags.base_model});
    write_file_atomic(out / "README.md", card);
  } catch (const Error& error) {
    log::warning("[export] no README.md is written, which says what the run's records say: ", error.what());
  }
}

/// Prints which programs do not serve the export exactly, and which settings programs need.
void tell_of_losses(report::ExportFormat format, const report::ServingFacts& facts) {
  for (const auto& served : report::serving(format, facts))
    if (!served.lost.empty())
      log::warning("[export] ", report::serving_line(served));
    else if (!served.asks.empty())
      log::info("[export] ", report::serving_line(served));
}

void print_serving(report::ExportFormat format, const report::ServingFacts& facts) {
  std::cout << config::name_of(format) << '\n';
  for (const auto& served : report::serving(format, facts)) std::cout << "  " << report::serving_line(served) << '\n';
}

/// Reads the adapter and converts it for the format. PEFT's formats need one rank for all sites.
Trained read_for(report::ExportFormat format, const ExportFlags& flags) {
  auto trained = flags.run.empty() ? read_adapter(flags) : read_run(flags);
  if (is_for_peft(format)) trained.adapters = lora::with_one_rank(std::move(trained.adapters));
  return trained;
}

report::ServingFacts facts_of(report::ExportFormat format, const ExportFlags& flags, const Trained& trained) {
  const bool whole_layers = is_for_peft(format) && !flags.no_pad;
  return report::serving_facts(*trained.shape, trained.adapters, trained.router, whole_layers);
}

/// Prints for every format how programs would serve it.
void check_formats(const ExportFlags& flags, std::span<const report::ExportFormat> formats) {
  for (const auto format : formats) print_serving(format, facts_of(format, flags, read_for(format, flags)));
}

void write_export(const ExportFlags& flags, report::ExportFormat format) {
  check_not_kept("--out", flags.out);
  const auto trained = read_for(format, flags);
  const auto facts = facts_of(format, flags, trained);
  const NewFolders folders(flags.out);
  AtomicFolder staged(flags.out);
  save(staged.path(), format, flags, trained);
  write_chat_template(staged.path(), flags);
  write_card(staged.path(), format, flags, trained, facts);
  if (flags.check) {
    print_serving(format, facts);
    std::cout << "read back here: "
              << read_back(
                     staged.path(), format,
                     {.base_model = trained.base.string(), .adapters = trained.adapters, .router = trained.router})
              << '\n';
  } else {
    tell_of_losses(format, facts);
  }
  staged.commit();
  std::cerr << "written to " << flags.out << '\n';
}

void run_export(const ExportFlags& flags, bool format_given) {
  const auto format = parse_enum<report::ExportFormat>("--format", flags.format);
  EK_CHECK(format == report::ExportFormat::kMerged || flags.dtype == "checkpoint", kConfig,
           "--dtype is for --format merged; adapters are float32");
  const auto experts = parse_enum<models::ExpertLayout>("--experts", flags.experts);
  EK_CHECK(format == report::ExportFormat::kMerged || experts == models::ExpertLayout::kOriginal, kConfig,
           "--experts is for --format merged; an adapter on fused experts is --format peft-fused");
  EK_CHECK(is_for_peft(format) || !flags.no_pad, kConfig, "--no-pad is for --format peft and peft-fused");
  EK_CHECK(flags.run.empty() != flags.adapter.empty() && flags.adapter.empty() == flags.model.empty(), kConfig,
           "export takes --run, or --adapter with --model");
  EK_CHECK(!flags.best || !flags.run.empty(), kConfig, "--best goes with --run");
  EK_CHECK(flags.base.empty() || !flags.run.empty(), kConfig, "--base goes with --run; --model names the model itself");
  EK_CHECK(flags.base_model.empty() || is_hub_name(flags.base_model), kConfig, "--base-model is ",
           shown(flags.base_model), ", allowed: a repository of the hub, as in allenai/OLMoE-1B-7B-0924");
  EK_CHECK(!flags.out.empty() || flags.check, kConfig, "export needs --out, or --check to write nothing");
  if (!flags.out.empty()) return write_export(flags, format);
  std::vector<report::ExportFormat> formats{format};
  if (!format_given) {
    formats.clear();
    for (const auto& entry : report::names(format)) formats.push_back(entry.value);
  }
  check_formats(flags, formats);
}

}  // namespace

void add_export_command(CLI::App& program) {
  auto flags = std::make_shared<ExportFlags>();
  auto* command = program.add_subcommand("export", "an adapter for PEFT or llama.cpp, or merged into its base model");
  command->footer(
      "Example: evenkeel export --run runs/demo-ub-smoe --format merged --out models/demo-merged\n\n"
      "Writes the adapter of a run's last committed round, or its best one, with a README.md of what its records say; "
      "or one that PEFT "
      "saved.\n"
      "peft: one Linear per expert and projection, for PEFT 0.17 and 0.21, vLLM, SGLang and llama.cpp's converter; for "
      "GraniteMoE, which has none, as peft-fused\n"
      "peft-fused: the same on fused expert tensors, for PEFT 0.21 alone; 0.17 loads it without a word, and wrong\n"
      "merged: a full checkpoint, added in float32, held in memory while it is written\n"
      "gguf: adapter.gguf, for llama.cpp's --lora");
  command->add_option("--run", flags->run, "run folder");
  add_base_flag(*command, flags->base);
  add_best_flag(*command, flags->best);
  command->add_option("--model", flags->model, "instead of a run: Hugging Face folder of the base model");
  command->add_option("--adapter", flags->adapter, "with --model: PEFT folder of its adapter");
  command->add_option("--format", flags->format, "peft, peft-fused, merged or gguf")->capture_default_str();
  command->add_option("--base-model", flags->base_model,
                      "the base model's name on the hub, for README.md and adapter_config.json; without it they name "
                      "none (no path of this machine is written)");
  command->add_option("--out", flags->out, "output folder, new or empty");
  command
      ->add_option("--dtype", flags->dtype,
                   "of merged weights: checkpoint (as in the base), float32, bfloat16, float64")
      ->capture_default_str();
  command
      ->add_option("--experts", flags->experts,
                   "of a merged checkpoint: original (as on the hub) or fused (as transformers 5 computes with them)")
      ->capture_default_str();
  command->add_flag("--check", flags->check,
                    "print what each program makes of it; with --out read it back too, without --out write nothing");
  command->add_flag(
      "--no-pad", flags->no_pad,
      "leave out projections of experts that were not trained (else zeros: vLLM, llama.cpp's converter and "
      "PEFT on transformers 5 refuse gaps)");
  auto* format = command->get_option("--format");
  command->callback([flags, format] { run_export(*flags, format->count() > 0); });
}

}  // namespace evenkeel::apps
