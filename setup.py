"""Packaging: ``pip install -e .`` into an environment with fairseq and torch leaves both alone."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

setup(
    name="fairseq-rela",
    version="0.1.0",
    description="Rectified Linear Attention (Zhang, Titov, Sennrich 2021) for fairseq",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.8",
    packages=[*find_packages(include=["fairseq_rela", "fairseq_rela.*"]), "fairseq_rela.configs"],
    package_dir={"fairseq_rela.configs": "configs"},
    package_data={
        "": ["*.css", "*.js", "*.html", "*.jinja", "py.typed"],
        "fairseq_rela.configs": ["*.yaml", "*/*.yaml"],
    },
    # fairseq comes under several names and brings its own torch: neither is required here
    install_requires=[
        "entmax>=1.0",
        "filelock>=3.12",
        "jinja2",
        "PyYAML",
        "regex",
        "requests",
        "sacrebleu>=2.0",
        "sacremoses>=0.1,<0.3",
        "scipy",
        "subword-nmt>=0.3.8",
        "tqdm",
    ],
    extras_require={
        "chinese": ["jieba"],
        "plots": ["matplotlib>=3.7"],
        "silver": ["eflomal"],
        "slurm": ["hydra-submitit-launcher"],
        "gpu": ["triton>=3.5"],
        "test": ["hypothesis", "mypy", "pytest", "pytest-xdist", "ruff"],
    },
    entry_points={"console_scripts": ["rela = fairseq_rela.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
