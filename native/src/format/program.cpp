#include "format/program.hpp"

#include <algorithm>
#include <set>

#include "format/facts.gen.hpp"
#include "format/match.hpp"

namespace partc::program {

Names reads(const Instruction& instruction) {
  return std::visit(Match{
                        [](const Run& item) { return item.inputs; },
                        [](const Send& item) { return item.values; },
                        [](const Sample& item) { return Names{item.logits}; },
                        [](const Add& item) { return item.terms; },
                        [](const Cut& item) { return Names{item.whole}; },
                        [](const Join& item) { return item.parts; },
                        [](const Emit& item) { return item.values; },
                        [](const Keep& item) { return item.values; },
                        [](const Recv&) { return Names{}; },
                    },
                    instruction);
}

Names writes(const Instruction& instruction) {
  return std::visit(Match{
                        [](const Recv& item) { return item.values; },
                        [](const Run& item) { return item.outputs; },
                        [](const Sample& item) { return Names{item.token}; },
                        [](const Add& item) { return Names{item.total}; },
                        [](const Cut& item) { return item.parts; },
                        [](const Join& item) { return Names{item.whole}; },
                        [](const Send&) { return Names{}; },
                        [](const Emit&) { return Names{}; },
                        [](const Keep&) { return Names{}; },
                    },
                    instruction);
}

const std::string& row_symbol(const std::string& submodule) {
  static const std::string source(SOURCE), sequence = "sequence";
  return submodule.ends_with(ONCE) ? source : sequence;
}

std::vector<Message> awaits(const Instruction& instruction) {
  const Recv* item = std::get_if<Recv>(&instruction);
  return item == nullptr ? std::vector<Message>{} : std::vector<Message>{{item->device, item->values}};
}

std::vector<Message> sends(const Instruction& instruction) {
  const Send* item = std::get_if<Send>(&instruction);
  return item == nullptr ? std::vector<Message>{} : std::vector<Message>{{item->device, item->values}};
}

Names kept_by(const Program& program) {
  Names found;
  for (const Instruction& item : program) {
    const Keep* keep = std::get_if<Keep>(&item);
    if (keep != nullptr) found.insert(found.end(), keep->values.begin(), keep->values.end());
  }
  return found;
}

Program tokenless(const Program& program) {
  std::set<std::string> tokens;
  for (const Instruction& item : program) {
    if (const Sample* sample = std::get_if<Sample>(&item)) tokens.insert(sample->token);
    if (const Emit* emit = std::get_if<Emit>(&item)) tokens.insert(emit->values.begin(), emit->values.end());
  }
  auto are_tokens = [&](const Names& values) {
    return std::ranges::all_of(values, [&](const std::string& name) { return tokens.contains(name); });
  };
  Program found;
  for (const Instruction& item : program) {
    const bool is_of_tokens = std::visit(Match{
                                             [](const Sample&) { return true; },
                                             [](const Emit&) { return true; },
                                             [&](const Send& send) { return are_tokens(send.values); },
                                             [&](const Recv& recv) { return are_tokens(recv.values); },
                                             [](const Add&) { return false; },
                                             [](const Cut&) { return false; },
                                             [](const Join&) { return false; },
                                             [](const Run&) { return false; },
                                             [](const Keep&) { return false; },
                                         },
                                         item);
    if (!is_of_tokens) found.push_back(item);
  }
  return found;
}

}  // namespace partc::program
