#include "flower/federation/own_rows.h"

#include <algorithm>
#include <iterator>

#include "flower/federation/request_check.h"

namespace evenkeel::flower {
namespace {

/// Returns the number of rows that a round's update is of, out of `examples` that the run keeps.
int64_t rows_of_update(const train::LocalTraining& train, int64_t examples) {
  return std::min(examples, train::rows_of_round(train, examples));
}

/// Returns the fewest rows that the node gives something of: its limit, or all rows that it has. Rows that the run's
/// keys or its chat template keep from training are among these. Otherwise a server could choose them so that a single
/// row is left.
int64_t least_rows(const fed::Experiment& e, int64_t examples, const OwnerLimits& limits) {
  const int64_t limit = e.server.config->data.limit;
  if (limit > 0 && examples >= limit) return limits.min_train_rows;  // it may have more than the limit
  const auto& shards = e.fabric.shards;
  const int64_t others = shards.without_target + shards.left_out + std::ssize(shards.held_out);
  return std::min(limits.min_train_rows, examples + others);
}

}  // namespace

void require_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits) {
  const auto& config = e.server.config;
  if (!config->clients.own_rows()) return;
  const auto& shards = e.fabric.shards;
  const auto examples = static_cast<int64_t>(shards.examples.at(static_cast<size_t>(client)).size());
  const int64_t least = least_rows(e, examples, limits);
  const auto& train = config->train;
  const int64_t rows = rows_of_update(train, examples);
  EK_CHECK(rows >= least, kConfig, "an update would be of ", rows, " of this node's rows (data.limit is ",
           config->data.limit, ", data.cutoff ", config->data.cutoff, ", train.local_epochs ", train.local_epochs,
           ", batch_size ", train.batch_size, ", accumulation ", train.accumulation,
           "; left out by data.files or the chat template: ", shards.left_out,
           ", by data.cutoff: ", shards.without_target, ", held out: ", shards.held_out.size(), "), allowed: ", least,
           " or more (--min-train-rows)");
  const auto sample = agreed_sample(e.server);
  if (!sample) return;
  const int64_t drawn = std::min(examples, sample->of_one(config->clients.count));
  EK_CHECK(drawn >= least, kConfig, "method ", config->method.name, " would begin with gradients of ", drawn,
           " of this node's rows (a sample of ", sample->rows, " from ", config->clients.count,
           " clients), allowed: ", least, " or more (--min-train-rows)");
}

}  // namespace evenkeel::flower
