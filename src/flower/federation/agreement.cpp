#include "flower/federation/agreement.h"

#include <algorithm>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "base/system/machine.h"
#include "fed/config/client_rows.h"
#include "fed/run/federation_plan.h"
#include "fed/store/manifest.h"

namespace evenkeel::flower {
namespace {

/// Replaces the files by a placeholder, because only their existence is part of the offered config.
void hide_files(data::FileSet& set) {
  for (auto* files : {&set.train, &set.test})
    if (!files->empty()) *files = {std::string(kRowsAtServer)};
}

}  // namespace

std::string sites_digest(const lora::Sites& sites) { return sha256(lora::layout_text(sites)); }

std::string named_tokens_digest(const tokenizer::Tokenizer& tokenizer) {
  std::string text;
  for (const auto& [name, token] : tokenizer.named_tokens()) text += concat(name, ' ', token.size(), ' ', token, '\n');
  return sha256(text);
}

std::string model_digest(const fs::path& folder) {
  std::string text;
  for (const auto& file : fed::model_files(folder))
    if (file.extension() != ".jinja")
      text += concat(fed::model_file_name(file, folder), ' ', fingerprint_of(file).digest, '\n');
  return sha256(text);
}

bool scores_clients_rows(const fed::RunConfig& config) {
  const auto& tasks = config->evaluate.tasks;
  return config->clients.own_rows() && std::any_of(tasks.begin(), tasks.end(), [&](const auto& task) {
           return data::find_task(task, config.rows()).family == "files";
         });
}

fed::RunConfig with_budgets(const fed::RunConfig& config, const std::map<int64_t, double>& changed) {
  if (changed.empty()) return config;
  const auto& entry = config->method.entry();
  std::vector<double> budgets;
  std::vector<int64_t> ranks;
  for (const auto& plan : config.plans()) budgets.push_back(plan.budget), ranks.push_back(plan.rank);
  for (const auto& [client, budget] : changed) {
    const auto index = static_cast<size_t>(client);
    budgets.at(index) = budget;
    if (entry.takes_unequal_ranks()) ranks.at(index) = entry.rank(budget, config->lora.rank);
  }
  return config.with([&](fed::ExperimentConfig& values) {
    auto& clients = values.clients;
    for (const auto& [client, budget] : changed) {
      const auto index = static_cast<size_t>(client);
      if (index >= clients.client.size()) break;  // the others are in the lists alone
      auto& own = clients.client[index];          // its values override the lists when the text is read
      if (own.budget) own.budget = budget;
      if (own.rank) own.rank = ranks[index];
    }
    clients.budgets = {.list = budgets};
    clients.ranks = {.list = ranks};
  });
}

std::string offered_text(const fed::RunConfig& config) {
  auto offered = without_rows(*config);
  for (auto& client : offered.clients.client) client.key.clear();  // the server checks keys
  offered.output.dir.clear();
  offered.model.path = kModelAtServer;
  offered.model.base_cache.clear();
  if (!offered.data.path.empty()) offered.data.path = kRowsAtServer;
  hide_files(offered.data.files);
  for (auto& [name, set] : offered.data.files.sets) hide_files(set);
  if (!offered.data.chat_template.empty()) offered.data.chat_template = kTemplateInOffer;
  if (!offered.lora.init.empty()) offered.lora.init = kAdapterAtServer;
  offered.evaluate.bert_score = {};
  offered.train.stop = {};  // the server compares the rounds
  offered.evaluate.keep_best = false;
  offered.evaluate.best = {};
  offered.model.device = "cpu";  // a node says itself where it computes
  offered.model.engine = fed::EngineChoice::kKernels;
  offered.model.graphs = fed::GraphsChoice::kOff;
  offered.model.cuda_kernels = "none";
  return offered.text();
}

std::string upload_summary(const fed::Server& server, const methods::ClientProfile& client) {
  const auto& entry = server.config->method.entry();
  const auto bytes = machine::bytes_text(factor_bytes(server, client.rank));
  std::string text = concat("in each round: ", entry.sends, " (", server.sites.size(), " of them, rank up to ",
                            client.rank, ", up to ", bytes, "); steps, tokens, losses, seconds");
  if (server.model.num_experts > 0) text += " and how many tokens chose each expert";
  if (entry.asks_gradients)
    text += "; once, before the first round: the sum of the gradients of some of its rows, for every adapted weight";
  if (scores_clients_rows(server.config)) text += "; where it has test rows: scores of all of them together";
  return text;
}

}  // namespace evenkeel::flower
