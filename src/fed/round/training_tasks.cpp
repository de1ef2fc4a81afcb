#include "fed/round/training_tasks.h"

#include "fed/round/client_privacy.h"

namespace evenkeel::fed {
namespace {

ClientRecord record_of_task(int64_t client, const PayloadSize& payload) {
  ClientRecord record;
  record.id = client;
  record.bytes_down = payload.bytes;
  record.down_parts = payload.parts;
  return record;
}

}  // namespace

Task TrainingTasks::make(const methods::ClientProfile& client) {
  auto task = server_.training_task(state_, client, round_, &broadcasts_);
  records_[client.id] = record_of_task(client.id, size_of(task.payload));
  return task;
}

std::optional<ClientRecord> TrainingTasks::record_of(const Reply& reply) const {
  const auto own = records_.find(reply.client);
  if (own == records_.end() && !reply.task_size) return std::nullopt;
  auto record = reply.task_size ? record_of_task(reply.client, *reply.task_size) : own->second;
  static_cast<train::LocalReport&>(record) = report_of<train::LocalReport>(reply);
  if (const auto& privacy = server_.config->privacy; privacy.protects_clients()) withhold(privacy, record);
  return record;
}

int64_t TrainingTasks::withdraw(int64_t client) {
  const auto task = records_.extract(client);
  return task.empty() ? 0 : task.mapped().bytes_down;
}

}  // namespace evenkeel::fed
