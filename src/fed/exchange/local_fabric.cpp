#include "fed/exchange/local_fabric.h"

#include "base/system/error_context.h"
#include "fed/exchange/gradient_sums.h"
#include "fed/exchange/parallel_exchange.h"

namespace evenkeel::fed {
namespace {

Reply with_encoded_upload(Reply reply) {
  reply.upload = encoded(std::move(reply.upload));
  return reply;
}

}  // namespace

void LocalFabric::announce(std::span<const methods::ClientProfile>, const StateUpdate& news) {
  context.shared->receive(news);
}

bool LocalFabric::share(const methods::ServerState& state) {
  context.shared->take(state);
  return true;
}

void LocalFabric::exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) {
  const auto threads = std::min(static_cast<size_t>(context.config->clients.parallel), to.size());
  // Several threads encode their own uploads. With one thread, the journal encodes the upload while the next client
  // trains.
  if (threads > 1)
    return exchange_in_parallel(to, exchange, threads, [this](const Task& task, const OnProgress& on_progress) {
      return with_encoded_upload(answer(task, on_progress));
    });
  for (const auto& client : to) {
    const Task task = exchange.task_of(client);
    auto reply = answer(task, exchange.on_progress);
    exchange.on_reply(exchange.encodes ? std::move(reply) : with_encoded_upload(std::move(reply)));
  }
}

Reply LocalFabric::answer(const Task& task, const OnProgress& on_progress) const {
  if (std::holds_alternative<SumGradients>(task.ask))
    EK_CHECK(!shards.examples.empty(), kConfig, "method ", context.config->method.name,
             " begins with gradients over training rows, and an evaluation has none: train a round first");
  const int64_t id = task.client.id;
  if (id == kPooledData) return answer_of_pool(task);
  if (std::holds_alternative<Score>(task.ask)) return Client(context, {}).answer(task, on_progress);
  const auto known = memories.find(id);
  Client client(context, shards.examples.at(static_cast<size_t>(id)),
                known == memories.end() ? TensorMap{} : known->second);
  const auto work = [&] { return client.answer(task, on_progress); };
  return std::holds_alternative<Train>(task.ask)
             ? in_context(training_context(task.round, context.config->clients.who(id), context.config->method.name),
                          work)
             : work();
}

/// Sums gradients over rows that are drawn from all clients' rows together.
Reply LocalFabric::answer_of_pool(const Task& task) const {
  std::vector<OwnedRow> rows;
  for (size_t c = 0; c < clients.size(); ++c)
    for (const auto& row : shards.examples[c]) rows.push_back({&row, clients[c].top_k});
  return sum_gradients(context, task, rows, std::get<SumGradients>(task.ask).sample.rows,
                       {context.seed(), "gradient-rows"});
}

}  // namespace evenkeel::fed
