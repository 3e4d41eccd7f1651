// decode FOLDER IDS [COUNT]: the likeliest COUNT tokens (16) after the prompt IDS, "1,2,3", by the bundle of one device in
// FOLDER; no partc, no Python. The bundle holds a whole model: one sub-module, from token ids to logits.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <set>

#include "kernel_plan.hpp"

using Ids = std::vector<int64_t>;
using partc::Json;

namespace {

#ifdef __aarch64__
constexpr char kProcessor[] = "aarch64", kFeatures[] = "Features";
#else
constexpr char kProcessor[] = "x86_64", kFeatures[] = "flags";
#endif

/** A model of one sub-module, with the states of one request of one sequence. */
class Model {
 public:
  explicit Model(const std::string& folder)
      : build_(partc::read_json(folder + "/build.json")),
        part_(build_["submodules"][0]),
        library_(checked(build_, folder) + "/" + part_["file"].text) {
    const Json& function = build_["engine"]["library"]["functions"][part_["name"].text];
    for (const Json& entry : function["entries"].items)
      if (entry[0].number() == 1) rows_.push_back(entry[1].number());
    std::sort(rows_.begin(), rows_.end());
    for (const Json& state : part_["states"].items) states_.push_back(zeros(state));
    std::map<std::string, partc::Array> tensors;
    for (const Json& file : part_["weights"].items) tensors.merge(partc::read_tensors(folder + "/" + file.text));
    for (const Json& name : function["weights"].items) weights_.push_back(tensors.at(name.text));
  }

  /** One step: the likeliest token after `ids`, which follow all that came before. */
  int64_t step(const Ids& ids) {
    const Json& limits = build_["model"];
    if (position_ + (int64_t)ids.size() > limits["max_sequence"].number())
      throw std::runtime_error("prompt and answer are longer than max_sequence");
    const int64_t vocabulary = limits["vocab_size"].number();
    if (ids.empty() || std::any_of(ids.begin(), ids.end(), [&](int64_t id) { return id < 0 || id >= vocabulary; }))
      throw std::runtime_error("ids are numbers from 0 to " + std::to_string(vocabulary - 1));
    const auto fits = std::find_if(rows_.begin(), rows_.end(), [&](int64_t rows) { return rows >= (int64_t)ids.size(); });
    Ids index(ids.size());
    std::iota(index.begin(), index.end(), 0);
    const std::map<std::string, partc::Array> given = {
        {"position", whole({1}, {position_})},
        {"length", whole({1}, {(int64_t)ids.size()})},
        {"index", whole({*fits}, index)},
    };
    std::vector<partc::Array> arguments;
    for (const Json& input : part_["inputs"].items) {
      const auto found = given.find(input.text);
      arguments.push_back(found != given.end() ? found->second : whole({1, *fits}, ids));
    }
    arguments.insert(arguments.end(), states_.begin(), states_.end());
    arguments.insert(arguments.end(), weights_.begin(), weights_.end());
    const partc::Array logits = library_.call(part_["name"].text + "_b1_s" + std::to_string(*fits), arguments)[0];
    position_ += ids.size();
    const float* first = reinterpret_cast<const float*>(logits.data.get());
    return std::max_element(first, first + logits.count()) - first;
  }

 private:
  /** The folder, if it holds a whole model for this processor. */
  static std::string checked(const Json& build, const std::string& folder) {
    const Json placement = partc::read_json(folder + "/placement.json");
    if (build["engine"]["kind"].text != "plan" || placement["ring"].items.size() != 1)
      throw std::runtime_error("not the bundle of a whole model, by the target tvm for a processor: " + folder);
    const std::string platform = build["engine"]["library"]["platform"].text;
    if (platform.rfind(kProcessor, 0) != 0)
      throw std::runtime_error("the library is not for this processor, " + std::string(kProcessor) + ", but for " + platform);
    const std::set<std::string> features = processor_features();
    for (const Json& need : build["engine"]["library"]["needs"].items)
      if (!features.empty() && !features.count(need.text))
        throw std::runtime_error("the library uses " + need.text + ", which this processor has not");
    return folder;
  }

  /** Features of the first processor, as Linux calls them; none where it does not say. */
  static std::set<std::string> processor_features() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
      if (line.rfind(kFeatures, 0) == 0) {
        std::stringstream words(line.substr(line.find(':') + 1));
        return {std::istream_iterator<std::string>(words), {}};
      }
    return {};
  }

  /** A tensor of whole numbers, zeros behind those that are given. */
  static partc::Array whole(const Ids& shape, const Ids& values) {
    const partc::Array array = partc::make_array("int64", shape);
    std::memcpy(array.data.get(), values.data(), values.size() * sizeof(int64_t));
    return array;
  }

  /** A state of one sequence: its first axis is the batch. In panels 16 positions lie side by side. */
  static partc::Array zeros(const Json& state) {
    Ids shape = {1};
    const Json& dims = state["shape"];
    for (size_t axis = 1; axis < dims.items.size(); ++axis) shape.push_back(dims[axis].number());
    if (state["layout"].text == "panels") shape = {1, shape[1], (shape[2] + 15) / 16, shape[3], 16};
    return partc::make_array(state["dtype"].text, shape);
  }

  Json build_, part_;
  partc::Library library_;
  Ids rows_;
  std::vector<partc::Array> states_, weights_;
  int64_t position_ = 0;
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) return std::cerr << "usage: decode FOLDER IDS [COUNT]\n", 2;
  try {
    Model model(words[1]);
    Ids ids;
    std::stringstream prompt(words[2]);
    for (std::string word; std::getline(prompt, word, ',');) ids.push_back(std::stoll(word));
    for (int left = count > 3 ? std::stoi(words[3]) : 16; left > 0; --left) {
      ids = {model.step(ids)};
      std::cout << ids[0] << (left > 1 ? " " : "\n") << std::flush;
    }
  } catch (const std::invalid_argument&) {
    return std::cerr << "IDS and COUNT are whole numbers\n", 1;
  } catch (const std::exception& error) {
    return std::cerr << error.what() << "\n", 1;
  }
}
