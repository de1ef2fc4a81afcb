#include <ATen/ATen.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/output_paths.h"
#include "apps/training_preview.h"
#include "base/format/limits.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/read_line.h"
#include "data/json_lines.h"
#include "data/prompt.h"
#include "data/row_reader.h"
#include "fed/config/experiment_config.h"
#include "models/causal_lm.h"
#include "tokenizer/bpe_training.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::apps {
namespace {

struct TokenizeFlags {
  MethodFlag method;
  std::string model, input, chat_template, date;
  bool decode = false, jsonl = false, no_special = false, chat = false;
  int64_t train = 0;  ///< ids of the tokenizer to train; 0: none
  std::string config, form, format;
  std::vector<std::string> data, settings, ignore;
  std::optional<int64_t> cutoff;
  PreviewOptions preview;

  bool shows_rows() const { return !config.empty() || !data.empty(); }
};

/// Loads the tokenizer of a model's folder, or the file itself.
tokenizer::Tokenizer tokenizer_at(const std::filesystem::path& model) {
  return is_folder(model) ? tokenizer::Tokenizer::of_model(model) : tokenizer::Tokenizer::load(model);
}

Json json_of(const std::string& line) {
  data::check_line_ends({line, 1, 1}, "the line");
  return parse_json(line, "the line");
}

std::string text_of(const std::string& line, bool jsonl) {
  if (!jsonl) return line;
  const auto json = json_of(line);
  return JsonView(json, "the line").string();
}

std::vector<int64_t> ids_of(const std::string& line, int64_t vocab_size) {
  const auto json = json_of(line);
  return JsonView(json, "the line").integers(0, vocab_size - 1);
}

std::string to_line(const std::vector<int64_t>& ids) {
  std::string out = "[";
  char digits[24];
  for (const int64_t id : ids) {
    const auto end = std::to_chars(digits, digits + sizeof digits, id).ptr;
    if (out.size() > 1) out += ',';
    out.append(digits, end);
  }
  return out + "]";
}

/// Returns the positions of the ids that training on the conversation predicts.
std::vector<int64_t> targets_of(const data::Row& row, const tokenizer::Tokenizer& tokenizer) {
  const auto rows =
      data::tokenize_rows(std::array{row}, tokenizer, {.form = data::PromptTemplate::kChat, .cutoff = limits::kTokens});
  const auto batch = data::pack(rows.examples);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < batch.target_rows.numel(); ++i)
    positions.push_back(batch.target_rows.const_data_ptr<int64_t>()[i] + 1);  // a row predicts the next id
  return positions;
}

/// Reads {"messages": [{"role", "content"}], "add_generation_prompt": false} and other keys for the template.
data::Row conversation_of(const data::SourceRow& source) {
  const data::FileRows what{.conversations = true};
  return data::RowReader(what).read_conversation(source, data::format_of(source.view()));
}

/// Formats the result for a conversation. If it ends with an answer, the result has the ids that are targets in
/// training, or the error for which training rejects it.
std::string conversation_line(const tokenizer::Tokenizer& tokenizer, const std::string& line) {
  const auto json = json_of(line);
  const data::SourceRow source(JsonView(json, "the line"), [&] { return tokenizer::chat_json(line, "the line"); });
  const auto row = conversation_of(source);
  const bool opens = source.view().flag_or("add_generation_prompt", false);
  const auto text = data::Prompts(tokenizer, data::PromptTemplate::kChat).conversation_text(row, opens);
  OrderedJson out{{"text", text}, {"ids", tokenizer.encode(text, /*add_special_tokens=*/false)}};
  if (opens || row.turns.empty() || row.turns.back().role != "assistant") return out.dump();
  try {
    out["targets"] = targets_of(row, tokenizer);
  } catch (const Error& error) {
    out["refused"] = error.what();
  }
  return out.dump();
}

std::string answer(const tokenizer::Tokenizer& tokenizer, const std::string& line, const TokenizeFlags& flags) {
  if (flags.chat) return conversation_line(tokenizer, line);
  if (!flags.decode) return to_line(tokenizer.encode(text_of(line, flags.jsonl), !flags.no_special));
  const auto text = tokenizer.decode(ids_of(line, tokenizer.vocab_size()), flags.no_special);
  return flags.jsonl ? Json(text).dump() : text;
}

std::ifstream opened(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  EK_CHECK(file && !is_folder(name), kIo, name, ": cannot be read");
  return file;
}

/// Calls `use(line)` for each line. Errors name the file and the line.
template <typename Use>
void for_each_line(const std::string& name, Use&& use) {
  std::ifstream file;
  if (name != "-") file = opened(name);
  std::istream& input = name == "-" ? std::cin : file;
  std::string line;
  for (int64_t number = 1;; ++number) {
    try {
      if (!read_line(input, line, limits::kInput)) return;
      use(line);
    } catch (const Error& error) {
      std::cout.flush();
      throw error.with_context(concat(name, ":", number));
    }
  }
}

/// Returns a value as TOML writes it.
std::string toml(const OrderedJson& value) { return value.dump(); }

/// Returns the name of a module that can be adapted. Rows do not depend on it, but not every model has the modules of
/// the default.
std::string any_target(const std::string& path) {
  for (const auto& [name, site] : models::load_shape(models::find_model_folder(path))->all_sites())
    if (site.role != lora::SiteRole::kRouter) return name.substr(name.rfind('.') + 1);
  fail(kCheckpoint, path, " has no module that can be adapted");
}

/// Returns the settings of a run that trains on the files of --data.
std::vector<std::string> settings_of(const TokenizeFlags& flags) {
  std::vector<std::string> settings{"name=\"tokenize\"",
                                    concat("model.path=", toml(flags.model)),
                                    "data.task=\"files\"",
                                    concat("data.files.train=", toml(flags.data)),
                                    "data.files.held_out=0",
                                    "evaluate.tasks=\"builtin\"",
                                    "evaluate.budgets=[1.0]",
                                    "method.name=\"fedit\"",
                                    "clients.count=1",
                                    "clients.budgets=[1.0]",
                                    concat("lora.targets=", toml(any_target(flags.model)))};
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) settings.push_back(concat(key, "=", toml(value)));
  };
  add("data.template", flags.form);
  add("data.files.format", flags.format);
  add("data.chat_template", flags.chat_template);
  add("data.date", flags.date);
  if (!flags.ignore.empty()) settings.push_back(concat("data.files.ignore=", toml(flags.ignore)));
  if (flags.cutoff) settings.push_back(concat("data.cutoff=", *flags.cutoff));
  return settings;
}

/// Shows the examples of a config's run, or of a run on the files of --data.
void run_preview(const TokenizeFlags& flags) {
  const bool of_config = !flags.config.empty();
  EK_CHECK(of_config == flags.data.empty() && of_config == flags.model.empty(), kConfig,
           "give either --config, or --model and --data");
  EK_CHECK(flags.input.empty() && flags.train == 0 && !flags.chat && !flags.decode && !flags.jsonl, kConfig,
           "--config and --data show rows of training: they exclude --input, --chat, --decode, --jsonl and --train");
  EK_CHECK(!of_config || (flags.form.empty() && flags.format.empty() && flags.chat_template.empty() &&
                          flags.date.empty() && flags.ignore.empty() && !flags.cutoff),
           kConfig,
           "--config has keys for these: --template, --format, --chat-template, --date, --ignore and --cutoff ",
           "go with --data; --set changes a key");
  EK_CHECK(flags.preview.rows >= 0, kConfig, "--rows is ", flags.preview.rows, ", allowed: 0 (all) or more");
  flags.method.check_choice(flags.config, flags.settings);
  auto table = of_config ? config::Table::load(flags.config) : config::Table::parse("", "--data");
  for (const auto& setting : of_config ? flags.method.settings() : settings_of(flags)) table.set(setting);
  for (const auto& setting : flags.settings) table.set(setting);
  print_training_examples(fed::ExperimentConfig::read(table), flags.preview);
}

/// Checks that no flag that only shows rows of training is given without such rows.
void check_no_row_flags(const TokenizeFlags& flags) {
  EK_CHECK(flags.form.empty() && flags.format.empty() && flags.ignore.empty() && !flags.cutoff &&
               flags.settings.empty() && flags.preview.client.empty() && !flags.preview.json &&
               flags.preview.rows == PreviewOptions().rows,
           kConfig,
           "--template, --format, --ignore, --cutoff, --set, --client, --rows and --json go with --config or --data");
}

/// Tokenises line by line, so that only one line is in memory. Lines end at \n only: a text may contain any other
/// control character.
void run_tokenize(const TokenizeFlags& flags) {
  EK_CHECK(!flags.model.empty() && !flags.input.empty(), kConfig,
           "tokenize needs --model and --input for lines of text, or --config, or --model and --data for rows");
  auto tokenizer = tokenizer_at(models::find_model_folder(flags.model));
  if (!flags.chat_template.empty()) tokenizer.use_chat_template(flags.chat_template);
  if (!flags.date.empty()) tokenizer.use_date(jinja::Date::read(jinja::Date::settled(flags.date), "--date"));
  EK_CHECK(flags.chat || (flags.chat_template.empty() && flags.date.empty()), kConfig,
           "--chat-template and --date go with --chat");
  for_each_line(flags.input, [&](const std::string& line) { std::cout << answer(tokenizer, line, flags) << '\n'; });
}

/// Reads the training texts: the whole input as one text, or with --jsonl one text per line.
std::vector<std::string> training_texts(const TokenizeFlags& flags) {
  std::vector<std::string> texts;
  if (flags.jsonl)
    for_each_line(flags.input, [&](const std::string& line) { texts.push_back(text_of(line, true)); });
  else
    texts.push_back(read_file(flags.input == "-" ? "/dev/stdin" : flags.input));
  return texts;
}

void run_training(const TokenizeFlags& flags) {
  EK_CHECK(!flags.model.empty() && !flags.input.empty(), kConfig, "--train needs --model and --input");
  const auto model = models::resolve_model_path(flags.model);  // it is to be written
  const auto file = model.extension() == ".json" ? model : model / "tokenizer.json";
  EK_CHECK(!path_exists(file), kIo, file.string(), " exists already");
  const NewFolders folders(file.parent_path());
  if (file.has_parent_path()) make_folders(file.parent_path());
  check_replaced_file("--model", file);
  tokenizer::TokenizerTraining training;
  training.vocab_size = flags.train;
  const auto json = tokenizer::train_tokenizer(training_texts(flags), training);
  write_file_atomic(file, json);
}

}  // namespace

void add_tokenize_command(CLI::App& program) {
  auto flags = std::make_shared<TokenizeFlags>();
  auto* command = program.add_subcommand("tokenize", "turns lines of text into token ids, or back");
  command->footer(
      "Example: evenkeel tokenize --model models/olmoe --input notes.txt\n\n"
      "         evenkeel tokenize --config run.toml\n"
      "         evenkeel tokenize --model models/olmoe --data rows.jsonl --template paper --json\n\n"
      "Prints the token ids of each line as a JSON array; with --decode, turns such arrays back into text. With "
      "--config or --data it shows rows as training sees them: text, ids, targets of the loss, and what was cut.");
  command->add_option("--model", flags->model, "model folder with tokenizer.json, or that file");
  command->add_option("--input", flags->input, "file to read line by line (ends at \\n only); - is standard input");
  command->add_option("--config", flags->config, "config of a run, whose training rows are shown");
  command->add_option("--data", flags->data, "files of rows, or globs, which are shown as a run trains on them");
  flags->method.add_to(*command, "with which the run of --config trains");
  command->add_option("--set", flags->settings, "--config, --data: a.b=value, changes one key of the config");
  command->add_option("--template", flags->form, "--data: paper (default), llm_adapters, chat or plain");
  command->add_option("--format", flags->format, "--data: format of the rows (default: auto)");
  command->add_option("--ignore", flags->ignore, "--data: keys of the rows that are left out, comma-separated")
      ->delimiter(',');
  command->add_option("--cutoff", flags->cutoff, "--data: largest number of tokens per row (default 256)");
  command->add_option("--client", flags->preview.client, "--config: name or number of the only client to show");
  command->add_option("--rows", flags->preview.rows, "--config, --data: rows to show of each client; 0: all")
      ->capture_default_str();
  command->add_flag("--json", flags->preview.json, "--config, --data: one JSON line per row");
  command->add_flag("--decode", flags->decode, "lines are arrays of ids, print their text");
  command->add_flag("--jsonl", flags->jsonl, "texts are JSON strings, one a line: for texts that hold newlines");
  command->add_flag("--chat", flags->chat,
                    "lines are {\"messages\": [...]}, with tools and documents: prints text, ids and, behind an "
                    "answer, targets of the loss, as JSON; \"add_generation_prompt\": true opens an answer");
  command->add_option("--chat-template", flags->chat_template,
                      "--chat, --data: a template file in the place of the model's");
  command->add_option("--date", flags->date,
                      "--chat, --data: what strftime_now of the template writes, YYYY-MM-DD, with Thh:mm:ss, or today");
  command->add_flag("--no-special", flags->no_special,
                    "encode without the template's special tokens; decode without any special token");
  command->add_option("--train", flags->train,
                      "train a byte-level BPE tokenizer of so many ids on the input, write it to --model");
  command->callback([flags] {
    EK_CHECK(flags->method.names.empty() || !flags->config.empty(), kConfig, "--method goes with --config");
    if (flags->shows_rows()) return run_preview(*flags);
    check_no_row_flags(*flags);
    flags->train == 0 ? run_tokenize(*flags) : run_training(*flags);
  });
}

}  // namespace evenkeel::apps
