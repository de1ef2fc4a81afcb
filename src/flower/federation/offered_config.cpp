#include "flower/federation/offered_config.h"

#include <algorithm>
#include <array>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "data/row_files.h"
#include "fed/config/client_rows.h"
#include "fed/config/config_paths.h"
#include "fed/store/changed_keys.h"
#include "fed/store/run_request.h"
#include "flower/federation/agreed_terms.h"

namespace evenkeel::flower {
namespace {

/// Checks the task families of the server's config. It may not name files of this machine, so the rows that the run
/// divides are generated, or are in a folder that the node's own options name.
void check_dealt_rows(const fed::ExperimentConfig& config, const NodeClientOptions& options) {
  fed::check_rows_of_nodes(config);
  for (const auto& name : config.data.task)
    EK_CHECK(data::find_task_family(name).generates || !options.data.empty(), kConfig, "the run deals out rows of ",
             name, ": --data, the folder they are in, is missing");
}

/// Replaces the server's rows in the config by the node's own rows, or by the node's folder of the divided rows.
void put_rows(fed::ExperimentConfig& config, int64_t client, const NodeClientOptions& options) {
  auto& clients = config.clients.client;
  if (!config.clients.own_rows()) {
    check_dealt_rows(config, options);
    EK_CHECK(options.data.size() < 2 && options.test.empty(), kConfig,
             "the run deals out its own rows: --data is the folder they are in, and there is no --test");
    if (!options.data.empty()) config.data.path = options.data[0];
    return;
  }
  EK_CHECK(!options.data.empty(), kConfig, "in this run every client brings rows of its own: --data is missing");
  for (auto& one : clients) one.data.clear(), one.test.clear();
  auto& own = clients.at(static_cast<size_t>(client));
  own.data = data::with_files_of_folders(options.data);
  own.test = data::with_files_of_folders(options.test);
}

/// Replaces the folders that a run may write into by the node's own one, whatever the server's config names.
void put_folders(fed::ExperimentConfig& config, const fs::path& own) {
  EK_CHECK(!own.empty(), kInternal, "a node has no folder for what it keeps");
  config.output.dir = own.string();
  config.model.base_cache = (own / "base").string();
}

/// Returns true if the model's own template is `text`.
bool has_template(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  try {
    return tokenizer.chat_templates().source() == text;
  } catch (const Error&) {  // it has none, or one that cannot be read
    return false;
  }
}

/// Writes the server's template to a file of this machine and puts its path into the config. If the run uses the
/// model's own template and this model has the same one, no file is needed.
void put_template(fed::ExperimentConfig& config, const Offer& offer, const NodeClientOptions& options) {
  auto& file = config.data.chat_template;
  const bool brought = !offer.chat_template.empty();
  EK_CHECK(brought || file.empty(), kData, "the server's offer does not bring the chat template that its config names");
  if (!brought) return;
  EK_CHECK(config.data.form == data::PromptTemplate::kChat && (file.empty() || file == kTemplateInOffer), kData,
           "the server's offer: a chat template that its config does not ask for");
  const auto tokenizer = tokenizer::Tokenizer::of_model(models::find_model_folder(options.model));
  EK_CHECK(named_tokens_digest(tokenizer) == offer.named_tokens, kConfig, "the model in ", options.model,
           " names other special tokens (tokenizer_config.json, special_tokens_map.json) than the server's: its chat ",
           "template would write another text");
  if (file.empty() && has_template(tokenizer, offer.chat_template)) return;
  make_folders(options.folder);
  const auto copy = template_file(options.folder, offer.run);
  write_file_atomic(copy, offer.chat_template);
  file = copy.string();
}

/// Returns true if an offered key has to be that of the config that the owner has agreed to. Paths are this machine's.
bool is_agreed_on(std::string_view key, int64_t client) {
  constexpr std::array<std::string_view, 4> kOwn = {"name", "model.path", "data.path", "lora.init"};
  const bool is_file = key.starts_with("data.files") && (key.ends_with(".train") || key.ends_with(".test"));
  const bool of_others = key.starts_with("clients.") && key != concat("clients.client[", client, "].held_out");
  return !is_file && !of_others && !may_change(key, client) && std::find(kOwn.begin(), kOwn.end(), key) == kOwn.end();
}

}  // namespace

fs::path template_file(const fs::path& folder, const std::string& run) {
  return folder / concat(run, "-chat_template.jinja");
}

fed::RunConfig node_config(const Offer& offer, const NodeClientOptions& options) {
  auto config = fed::ExperimentConfig::read(config::Table::parse(offer.config, "the server's offer"));
  EK_CHECK(offer.client < config.clients.count, kData, "the server's offer: client ", offer.client, " of ",
           config.clients.count);
  fed::check_nodes(config.secure_aggregation);
  config.model.path = options.model;
  if (options.threads > 0) config.threads = options.threads;
  config.clients.parallel = 1;
  config.evaluate.bert_score = {};
  put_folders(config, options.folder);
  put_rows(config, offer.client, options);
  put_template(config, offer, options);
  if (config.clients.own_rows()) config = fed::with_inputs(std::move(config));  // else its paths are the server's
  const auto settled = fed::settle(std::move(config), {});
  return options.budget ? with_budgets(settled, {{offer.client, *options.budget}}) : settled;
}

void require_agreed_config(const fs::path& agreed, const fed::RunConfig& offered, int64_t client) {
  if (agreed.empty()) return;
  auto changes = fed::changed_keys(*fed::settled_like(agreed_config(agreed), offered), *offered);
  std::erase_if(changes, [&](const auto& change) { return !is_agreed_on(change.key, client); });
  EK_CHECK(changes.empty(), kConfig, "the server's run is not that of ", agreed.string(), ": ",
           join(fed::lines_of(changes), "; "));
}

fed::ExperimentConfig agreed_config(const fs::path& file) {
  auto config = fed::RunRequest{.file = file}.config();
  const auto of_chat = expand_data_path(config.data.chat_template, "data.chat_template");
  EK_CHECK(of_chat.empty() || is_file(of_chat), kIo, file.string(), ": data.chat_template is ", of_chat.string(),
           ", which is not there");
  return config;
}

}  // namespace evenkeel::flower
