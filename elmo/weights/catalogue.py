"""The catalogue of published ELMo models, as a literal table: languages, training text, files and known problems.

`elmo models` prints it, `elmo.weights.lookup` searches it and `elmo.weights.fetch` downloads its files. This module is
data only: it does not import torch and downloads nothing. A field that is None or empty was not found in a reliable
source; `source` says where the addresses were read. No publisher gives a sha256, and one gives sha1; someone who has
verified a file can add it. The file is long because it holds one thing, a table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """One file to download, and the name to store it under."""

    url: str
    name: str
    num_bytes: int | None = None
    sha256: str | None = None
    sha1: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A published model.

    `obstacle` says why this package cannot read it as published, `by_hand` why `elmo fetch` cannot download it; both
    are empty if it can.
    """

    name: str
    languages: tuple[str, ...]  # ISO 639 codes; "protein" for SeqVec
    trained_on: str
    files: tuple[PublishedFile, ...]
    dim: int | None  # width of a layer's vectors
    parameters: int | None = None  # without the softmax
    kind: str = "hdf5"  # format of the files: hdf5, tensorflow, zip, tar, manylangs, tfhub
    licence: str = ""
    page: str = ""
    source: str = ""  # where the addresses of the files were read
    note: str = ""
    obstacle: str = ""
    by_hand: str = ""

    @property
    def fetchable(self) -> bool:
        """Whether `elmo fetch` can download the model: it can be read, and its files have addresses of their own."""
        return not self.obstacle and not self.by_hand


_S3 = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
_NLPL = "http://vectors.nlpl.eu/repository/20"
_CLARIN = "http://hdl.handle.net/11356/1277"
_CLARIN_FILES = "https://www.clarin.si/repository/xmlui/bitstream/handle/11356/1277"
_PAVLOV = "http://files.deeppavlov.ai/deeppavlov_data"
_ALLENNLP_PAGE = "https://allenai.org/allennlp/software/elmo"
_ALLENNLP_SOURCE = "github.com/allenai/allennlp-website, elmo.html"
_GERMAN = "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model"
_BILM_TF = "https://github.com/allenai/bilm-tf"
_NEWS_2011 = "1 Billion Word Benchmark, about 800M tokens of WMT 2011 news"


def _pair(folder: str, stem: str, weights_bytes: int | None = None) -> tuple[PublishedFile, ...]:
    options, weights = f"{stem}_options.json", f"{stem}_weights.hdf5"
    return (
        PublishedFile(url=f"{_S3}/{folder}/{options}", name=options),
        PublishedFile(url=f"{_S3}/{folder}/{weights}", name=weights, num_bytes=weights_bytes),
    )


def _options_weights(options_url: str, weights_url: str) -> tuple[PublishedFile, ...]:
    return (PublishedFile(url=options_url, name="options.json"), PublishedFile(url=weights_url, name="weights.hdf5"))


def _nlpl(number: int) -> tuple[PublishedFile, ...]:
    return (PublishedFile(url=f"{_NLPL}/{number}.zip", name=f"{number}.zip"),)


_ALLENNLP = (
    PublishedModel(
        name="small",
        languages=("en",),
        trained_on=_NEWS_2011,
        files=_pair("2x1024_128_2048cnn_1xhighway", "elmo_2x1024_128_2048cnn_1xhighway"),
        dim=256,
        parameters=13_593_296,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
    ),
    PublishedModel(
        name="medium",
        languages=("en",),
        trained_on=_NEWS_2011,
        files=_pair("2x2048_256_2048cnn_1xhighway", "elmo_2x2048_256_2048cnn_1xhighway"),
        dim=512,
        parameters=28_027_728,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
    ),
    PublishedModel(
        name="original",
        languages=("en",),
        trained_on=_NEWS_2011,
        files=_pair("2x4096_512_2048cnn_2xhighway", "elmo_2x4096_512_2048cnn_2xhighway", 374_434_792),
        dim=1024,
        parameters=93_600_848,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
        note="The paper's model. A copy: huggingface.co/lysandre/elmo-2x4096_512_2048cnn_2xhighway.",
    ),
    PublishedModel(
        name="original-5.5b",
        languages=("en",),
        trained_on="5.5B tokens: Wikipedia (1.9B), WMT 2008-2012 news (3.6B)",
        files=_pair("2x4096_512_2048cnn_2xhighway_5.5B", "elmo_2x4096_512_2048cnn_2xhighway_5.5B"),
        dim=1024,
        parameters=93_600_848,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
        note="Its publishers recommend it over `original`.",
    ),
    PublishedModel(
        name="pubmed",
        languages=("en",),
        trained_on="PubMed",
        files=(
            PublishedFile(
                url=f"{_S3}/contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
                name="elmo_2x4096_512_2048cnn_2xhighway_options.json",
            ),
            PublishedFile(
                url=f"{_S3}/contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
                name="elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
            ),
        ),
        dim=1024,
        parameters=93_600_848,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
    ),
    PublishedModel(
        name="pt-wikipedia",
        languages=("pt",),
        trained_on="Portuguese Wikipedia",
        files=_options_weights(
            f"{_S3}/contributed/pt/wikipedia/options.json", f"{_S3}/contributed/pt/wikipedia/elmo_pt_weights.hdf5"
        ),
        dim=None,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
        note="Federal University of Goiás.",
    ),
    PublishedModel(
        name="pt-brwac",
        languages=("pt",),
        trained_on="brWaC",
        files=_options_weights(
            f"{_S3}/contributed/pt/brwac/options.json", f"{_S3}/contributed/pt/brwac/elmo_pt_weights_dgx1.hdf5"
        ),
        dim=1024,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
        note="Federal University of Goiás.",
    ),
    PublishedModel(
        name="ja-exawizards",
        languages=("ja",),
        trained_on="Japanese text (Bataa and Wu 2019)",
        files=_options_weights(
            "https://exawizardsallenlp.blob.core.windows.net/data/options.json",
            "https://exawizardsallenlp.blob.core.windows.net/data/weights.hdf5",
        ),
        dim=None,
        page=_ALLENNLP_PAGE,
        source=_ALLENNLP_SOURCE,
    ),
    PublishedModel(
        name="de-wikipedia",
        languages=("de",),
        trained_on="German Wikipedia with its discussion pages, 963M tokens",
        files=(
            PublishedFile(
                url=f"{_GERMAN}/releases/download/files_1/options.json",
                name="options.json",
                sha1="04afb8bc77acf5e65633ced2efc1e91d05332e89",
            ),
            PublishedFile(
                url=f"{_GERMAN}/releases/download/files_1/weights.hdf5",
                name="weights.hdf5",
                sha1="9084adab3eefaed4f07da7331217fcb873417add",
            ),
        ),
        dim=None,
        licence="BSD-2-Clause",
        page=_GERMAN,
        source="README.md of that repository, with sha1",
    ),
    PublishedModel(
        name="eu-plur",
        languages=("eu",),
        trained_on="Basque Wikipedia, OPUS and Leipzig corpora, 73M tokens",
        files=_options_weights(
            "https://schweter.eu/cloud/eu-elmo/options.json", "https://schweter.eu/cloud/eu-elmo/weights.hdf5"
        ),
        dim=None,
        page="https://github.com/stefan-it/plur",
        source="github.com/t-systems-on-site-services-gmbh/german-elmo-model, issue 2, by the model's author",
    ),
)

_BILM_TF_CHECKPOINTS = tuple(
    PublishedModel(
        name=f"{preset}-checkpoint",
        languages=("en",),
        trained_on=_NEWS_2011,
        files=(
            PublishedFile(url=f"{_S3}/{folder}/options.json", name="options.json"),
            PublishedFile(url=f"{_S3}/vocab-2016-09-10.txt", name="vocab-2016-09-10.txt"),
            PublishedFile(url=f"{_S3}/{folder}/model.ckpt-{step}.index", name=f"model.ckpt-{step}.index"),
            PublishedFile(
                url=f"{_S3}/{folder}/model.ckpt-{step}.data-00000-of-00001",
                name=f"model.ckpt-{step}.data-00000-of-00001",
            ),
        ),
        dim=dim,
        parameters=parameters,
        kind="tensorflow",
        page=_BILM_TF,
        source=source,
        note=f"`{preset}` with its softmax, so that it can score words and be finetuned.",
    )
    for preset, folder, step, dim, parameters, source in (
        ("small", "2x1024_128_2048cnn_1xhighway/tf_checkpoint", 1501260, 256, 13_593_296,
         "github.com/allenai/bilm-tf, issue 105, by the publishers"),
        ("medium", "2x2048_256_2048cnn_1xhighway/tf_checkpoint", 1501260, 512, 28_027_728,
         "github.com/allenai/bilm-tf, issue 198, by the publishers"),
        ("original", "2x4096_512_2048cnn_2xhighway_tf_checkpoint", 935588, 1024, 93_600_848,
         "github.com/allenai/bilm-tf, README.md"),
    )
)  # fmt: skip

_CROSSLINGUAL = tuple(
    PublishedModel(
        name=f"{code}-crosslingual",
        languages=(code,),
        trained_on="Wikipedia",
        files=(
            PublishedFile(url="https://www.dropbox.com/s/ypjuzlf7kj957g3/options262.json?dl=1", name="options.json"),
            PublishedFile(
                url=f"https://www.dropbox.com/s/{key}/{code}_weights.hdf5?dl=1", name=f"{code}_weights.hdf5"
            ),
        ),
        dim=None,
        page="https://github.com/TalSchuster/CrossLingualContextualEmb",
        source="README.md of that repository; ?dl=1 asks Dropbox for the file instead of its page",
        note="That page also links matrices that align the model with English.",
    )
    for code, key in (
        ("en", "1h62kc1qdcuyy2u"), ("es", "ygfjm7zmufl5gu2"), ("fr", "mm64goxb8wbawhj"), ("it", "owfou7coi04dyxf"),
        ("pt", "ul82jsal1khfw5b"), ("sv", "boptz21zrs4h3nw"), ("de", "2kbjnvb12htgqk8"),
    )
)  # fmt: skip

_NLPL_BILM = tuple(
    PublishedModel(
        name=f"nlpl-{number}",
        languages=(code,),
        trained_on=trained_on,
        files=_nlpl(number),
        dim=None,
        kind="zip",
        page="http://vectors.nlpl.eu/repository/",
        source="the NLPL wiki; the numbers are those of the repository",
        note=note,
    )
    for number, code, trained_on, note in (
        (195, "ru", "Russian National Corpus and Wikipedia, December 2018", "RusVectores, word forms."),
        (196, "ru", "Russian National Corpus and Wikipedia, December 2018", "RusVectores, lemmas."),
        (199, "ru", "Taiga, 2019", "RusVectores, lemmas."),
        (201, "de", "", "Used for SemEval-2020 task 1 (semantic change)."),
        (202, "sv", "", "Used for SemEval-2020 task 1 (semantic change)."),
        (203, "la", "", "Used for SemEval-2020 task 1 (semantic change)."),
        (209, "en", "", "Used for SemEval-2020 task 1 (semantic change)."),
        (210, "no", "Norwegian Wikipedia, September 2020, about 160M words", "NorELMo, lemmas."),
        (211, "no", "Norwegian Wikipedia, September 2020, about 160M words", "NorELMo, word forms."),
        (212, "ru", "Araneum Russicum, 2020", "RusVectores, lemmas; about 1.5 GB."),
        (217, "no", "Norwegian Wikipedia and Norsk Aviskorpus", "NorELMo30: softmax of 30,000 words."),
        (218, "no", "Norwegian Wikipedia and Norsk Aviskorpus", "NorELMo100: softmax of 100,000 words."),
    )
)

_CLARIN_BILM = tuple(
    PublishedModel(
        name=f"{code}-embeddia",
        languages=(code,),
        trained_on=f"large {language.capitalize()} corpora (Ulčar and Robnik-Šikonja 2020)",
        files=(
            PublishedFile(
                url=f"{_CLARIN_FILES}/slovenian-elmo.tar.gz" if code == "sl" else _CLARIN,
                name=f"{language}-elmo.tar.gz",
            ),
        ),
        dim=None,
        kind="tar",
        page=_CLARIN,
        source="the record 11356/1277 of CLARIN.SI; the file of `sl` also from READMEs that download it",
        note="Unpack it in that folder: it contains options.json and a weights file.",
        by_hand="" if code == "sl" else "The record's page links the file; its own address could not be confirmed.",
    )
    for code, language in (
        ("hr", "croatian"), ("et", "estonian"), ("fi", "finnish"), ("lv", "latvian"), ("lt", "lithuanian"),
        ("sl", "slovenian"), ("sv", "swedish"),
    )
)  # fmt: skip

_MANYLANGS_TEXT = "20M words of the CoNLL 2017 texts (Wikipedia, Common Crawl)"
_MANYLANGS_PAGE = "https://github.com/HIT-SCIR/ELMoForManyLangs"
_MANYLANGS = tuple(
    PublishedModel(
        name=f"{code}-manylangs",
        languages=(code,),
        trained_on=_MANYLANGS_TEXT,
        files=_nlpl(number),
        dim=1024,
        kind="manylangs",
        page=_MANYLANGS_PAGE,
        source="the project's README gives the numbers, the NLPL repository their new folder (20)",
        note="The project's own links (repository/11) were reported dead in 2020 and 2021; the number stays.",
    )
    for number, code in (
        (136, "ar"), (137, "bg"), (138, "ca"), (139, "cs"), (140, "cu"), (141, "da"), (142, "de"), (143, "el"),
        (144, "en"), (145, "es"), (146, "et"), (147, "eu"), (148, "fa"), (149, "fi"), (150, "fr"), (151, "ga"),
        (152, "gl"), (153, "grc"), (154, "he"), (155, "hi"), (156, "hr"), (157, "hu"), (158, "id"), (159, "it"),
        (160, "ja"), (161, "ko"), (162, "la"), (163, "lv"), (164, "nl"), (165, "nb"), (166, "nn"), (167, "pl"),
        (168, "pt"), (169, "ro"), (170, "ru"), (171, "sk"), (172, "sl"), (173, "sv"), (174, "tr"), (175, "ug"),
        (176, "uk"), (177, "ur"), (178, "vi"), (179, "zh"),
    )
)  # fmt: skip

_HUB_OBSTACLE = "A TF-Hub module has its own graph and variable names. Use a checkpoint or an HDF5 dump instead."
_OTHERS = (
    PublishedModel(
        name="seqvec",
        languages=("protein",),
        trained_on="UniRef50 (amino acids as words)",
        files=_options_weights(
            "http://data.bioembeddings.com/public/embeddings/embedding_models/seqvec/options.json",
            "http://data.bioembeddings.com/public/embeddings/embedding_models/seqvec/weights.hdf5",
        ),
        dim=1024,
        page="https://github.com/Rostlab/SeqVec",
        source="the defaults of bio_embeddings, which took the model over",
        note="The project's own link was reported dead (Rostlab/SeqVec issue 17).",
    ),
    PublishedModel(
        name="zhs-manylangs",
        languages=("zh",),
        trained_on="Xinhua part of Chinese Gigaword 5, simplified characters",
        files=(PublishedFile(url="http://pbmpb9h15.bkt.gdipper.com/zhs.model.tar.xz", name="zhs.model.tar.xz"),),
        dim=1024,
        kind="manylangs",
        page=_MANYLANGS_PAGE,
        source="the project's README",
        note="Unpack it in that folder.",
        by_hand="The link is dead since 2019 (ELMoForManyLangs issues 57, 61, 106).",
    ),
    *(
        PublishedModel(
            name=f"ru-deeppavlov-{short}",
            languages=("ru",),
            trained_on=text,
            files=(PublishedFile(url=f"{_PAVLOV}/{file}", name=file),),
            dim=None,
            kind="tfhub",
            page="https://github.com/deepmipt/DeepPavlov/blob/0.8.0/docs/features/pretrained_vectors.rst",
            obstacle=_HUB_OBSTACLE,
        )
        for short, text, file in (
            ("wiki", "Russian Wikipedia", "elmo_ru-wiki_600k_steps.tar.gz"),
            ("news", "Russian WMT news 2011-2016", "elmo_ru-news_wmt11-16_1.5M_steps.tar.gz"),
            ("twitter", "Russian Twitter 2013-2018", "elmo_ru-twitter_2013-01_2018-04_600k_steps.tar.gz"),
        )
    ),
    PublishedModel(
        name="tfhub-3",
        languages=("en",),
        trained_on=_NEWS_2011,
        files=(PublishedFile(url="https://tfhub.dev/google/elmo/3", name="3.tar.gz"),),
        dim=1024,
        kind="tfhub",
        page="https://tfhub.dev/google/elmo/3",
        obstacle=_HUB_OBSTACLE + " `original` has the same size and training text.",
    ),
)

PUBLISHED_MODELS = {
    m.name: m
    for m in (*_ALLENNLP, *_BILM_TF_CHECKPOINTS, *_NLPL_BILM, *_CLARIN_BILM, *_CROSSLINGUAL, *_MANYLANGS, *_OTHERS)
}

# models of this project, trained by a recipe in runs/; they are in the package, so there are no files to download
OWN_MODELS = {
    "english": PublishedModel(
        name="english",
        languages=("en",),
        trained_on="open English text: Wikipedia, novels, law, biomedicine, abstracts, dialogue, speeches",
        files=(),
        dim=768,
        licence="CC BY-SA 4.0; the licences of its text: docs/model_card.md",
    ),
    "english-small": PublishedModel(
        name="english-small",
        languages=("en",),
        trained_on="the text of english; the model is six to eight times as fast",
        files=(),
        dim=256,
        licence="CC BY-SA 4.0; the licences of its text: docs/model_card_english_small.md",
    ),
    "many": PublishedModel(
        name="many",
        languages=(
            *("ar", "bg", "cs", "cy", "da", "de", "el", "en", "es", "eu", "fa", "fi", "fr", "ga", "he", "hi", "id"),
            *("it", "nl", "no", "pl", "pt", "ro", "ru", "sl", "sr", "sv", "sw", "tr", "uk", "vi"),
        ),
        trained_on="open text in 31 languages: novels, speeches, documentation, single sentences",
        files=(),
        dim=256,
        licence="CC BY-SA 4.0; the licences of its text: docs/model_card_many.md",
    ),
}


def markdown_table() -> str:
    """The table as docs/weights.md shows it."""
    rows = [
        "| name | languages | parameters | width | trained on | licence | files and notes |",
        "|---|---|--:|--:|---|---|---|",
    ]
    for model in PUBLISHED_MODELS.values():
        links = " ".join(f"[{file.name}]({file.url})" for file in model.files)
        rows.append(
            f"| `{model.name}` | {', '.join(model.languages)} | {f'{model.parameters:,}' if model.parameters else ''} "
            f"| {model.dim or ''} | {model.trained_on} | {model.licence} "
            f"| {' '.join(filter(None, (links, model.note, model.obstacle, model.by_hand)))} |"
        )
    return "\n".join(rows) + "\n"
