#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"
#include "base/format/command_line.h"
#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/system/interrupt.h"
#include "train/pretraining.h"
#include "train/pretraining_folder.h"

namespace evenkeel::apps {
namespace {

struct PretrainFlags {
  std::string config, out, device, experts = "original";
  std::vector<std::string> settings;
  bool resume = false;
};

std::string resume_command(const PretrainFlags& flags, const std::string& out) {
  std::vector<std::string> words{"pretrain", flags.config};
  for (const auto& setting : flags.settings) words.insert(words.end(), {"--set", setting});
  if (flags.experts != "original") words.insert(words.end(), {"--experts", flags.experts});
  if (!flags.device.empty()) words.insert(words.end(), {"--device", flags.device});
  words.insert(words.end(), {"--out", out, "--resume"});
  return command_line(words);
}

/// Checks that a new run would not begin in the folder of an unfinished one.
void check_not_begun(const PretrainFlags& flags, const std::string& out) {
  const bool begun = path_exists(fs::path(out) / "pretrain.toml") && !train::PretrainingFolder(out).finished();
  EK_CHECK(flags.resume || !begun, kIo, out,
           " holds a run already: choose another --out, or resume it with: ", resume_command(flags, out));
}

void run_pretrain(const PretrainFlags& flags) {
  const auto experts = parse_enum<models::ExpertLayout>("--experts", flags.experts);
  auto table = config::Table::load(flags.config);
  for (const auto& setting : flags.settings) table.set(setting);
  if (!flags.device.empty()) table.set(concat("model.device=\"", flags.device, "\""));
  auto config = config::read<train::PretrainConfig>(table);
  config.model.config = expand_home(config.model.config, "model.config");
  const std::string out = flags.out.empty() ? "models/" + config.name : flags.out;
  watch_interrupts();
  check_not_kept("--out", out);
  check_not_begun(flags, out);
  const NewFolders folders(out);
  if (!train::pretrain(config, out, flags.resume, interrupt_requested, experts))
    throw Interrupted("interrupted, state saved; resume with: " + resume_command(flags, out));
  std::cerr << "the model is in " << out
            << "; try it: " << command_line({"generate", "--model", out, "--prompt", "Once"}) << "\n";
}

}  // namespace

void add_pretrain_command(CLI::App& program) {
  auto flags = std::make_shared<PretrainFlags>();
  auto* command = program.add_subcommand("pretrain", "trains a small model from scratch on text");
  command->footer(
      "Example: evenkeel pretrain configs/pretrain/tiny-olmoe.toml --out models/mine\n"
      "         evenkeel pretrain configs/pretrain/tiny-olmoe.toml --set model.config=qwen3_moe.json --out "
      "models/mine\n\n"
      "Trains a small model of any family from scratch on text and writes a Hugging Face folder. model.config names "
      "its "
      "config.json, which says the family, the shape, and how many experts a token has.");
  command->add_option("CONFIG", flags->config, "TOML file; --set changes single keys")->required();
  command->add_option("--set", flags->settings, "a.b=value, as often as needed");
  command->add_option("--out", flags->out, "output folder, new (default: models/<name>)");
  command
      ->add_option("--experts", flags->experts,
                   "of the finished model: original (as the family's checkpoints on the hub have them) or fused (as "
                   "transformers 5 computes with them)")
      ->capture_default_str();
  add_device_flag(*command, flags->device);
  command->add_flag("--resume", flags->resume, "resume from the checkpoint in the output folder");
  command->callback([flags] { run_pretrain(*flags); });
}

}  // namespace evenkeel::apps
